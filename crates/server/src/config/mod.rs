//! tmp
#[derive(Clone)]
pub struct Config {
    pub requirepass: String,
    pub protected_mode: bool,
    pub maxclients: u64,
    pub tcp_keepalive: u64,
    pub timeout: u64,
    pub client_query_buffer_limit: u64,
    pub proto_max_bulk_len: u64,
    pub hash_max_listpack_entries: u64,
    pub hash_max_listpack_value: u64,
    pub hz: u64,
    pub active_expire_effort: u64,
    pub port: u16,
    pub io_threads: usize,
    pub io_backend: String,
    pub databases: usize,
}
impl Config {
    pub fn from_args() -> Config {
        let mut c = Config {
            requirepass: String::new(),
            protected_mode: true,
            maxclients: 10000,
            tcp_keepalive: 300,
            timeout: 0,
            client_query_buffer_limit: 1 << 30,
            proto_max_bulk_len: 512 << 20,
            hash_max_listpack_entries: 512,
            hash_max_listpack_value: 64,
            hz: 10,
            active_expire_effort: 1,
            port: 6379,
            io_threads: std::thread::available_parallelism().map_or(1, |n| n.get()),
            io_backend: "auto".into(),
            databases: 16,
        };
        let a: Vec<String> = std::env::args().collect();
        for w in a.windows(2) {
            match w[0].as_str() {
                "--port" => c.port = w[1].parse().unwrap(),
                "--io-threads" => c.io_threads = w[1].parse().unwrap(),
                "--io-backend" => c.io_backend = w[1].clone(),
                _ => {}
            }
        }
        c
    }
}
