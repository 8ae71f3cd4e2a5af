// Jedis writes to a cluster until its input ends, then reads all that was acknowledged.
//
// java -cp 'JARS/*' Main.java PORT

import java.io.IOException;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.stream.Collectors;

import redis.clients.jedis.DefaultJedisClientConfig;
import redis.clients.jedis.HostAndPort;
import redis.clients.jedis.JedisClientConfig;
import redis.clients.jedis.JedisCluster;
import redis.clients.jedis.exceptions.JedisException;

public class Main {
    static final int WRITERS = 4;
    static final int PAUSE_MS = 1;
    static final int PATIENCE_MS = 60_000;
    static final int TIMEOUT_MS = 20_000;
    static final int ATTEMPTS = 5;
    /**
     * Behind its third attempt Jedis sleeps for a sixth of this, behind the fourth for half of what is
     * left, however soon another node would answer: 58 s of the 100 (ATTEMPTS times TIMEOUT_MS)
     * that it would take by itself.
     */
    static final Duration RETRIES = Duration.ofSeconds(10);

    static volatile boolean isOver = false;
    static final List<String> acknowledged = new ArrayList<>();
    static final Map<String, Integer> errors = new TreeMap<>();
    static long longestMs = 0;

    static long nowMs() {
        return System.nanoTime() / 1_000_000;
    }

    static void write(JedisCluster client, int writer) {
        for (int number = 1; !isOver; number++) {
            String key = writer + ":" + number;
            long sinceMs = nowMs();
            String error = null;
            try {
                client.set(key, String.valueOf(number));
            } catch (JedisException caught) {
                error = caught.getClass().getSimpleName();
            }
            synchronized (acknowledged) {
                if (error == null) {
                    acknowledged.add(key);
                } else {
                    errors.merge(error, 1, Integer::sum);
                }
                longestMs = Math.max(longestMs, nowMs() - sinceMs);
            }
            rest(PAUSE_MS);
        }
    }

    /** A cluster may need a moment; what is not there is not there. */
    static String read(JedisCluster client, String key) {
        for (long untilMs = nowMs() + PATIENCE_MS; ; rest(100)) {
            try {
                return client.get(key);
            } catch (JedisException error) {
                if (nowMs() > untilMs) {
                    throw error;
                }
            }
        }
    }

    static void rest(int ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            throw new IllegalStateException(error);
        }
    }

    /** As its file is called. */
    static String version() {
        String path = JedisCluster.class.getProtectionDomain().getCodeSource().getLocation().getPath();
        return path.replaceAll(".*/jedis-(.*)[.]jar", "$1");
    }

    public static void main(String[] args) throws IOException, InterruptedException {
        HostAndPort place = new HostAndPort("127.0.0.1", Integer.parseInt(args[0]));
        JedisClientConfig config =
            DefaultJedisClientConfig.builder().timeoutMillis(TIMEOUT_MS).build();
        JedisCluster client = new JedisCluster(Set.of(place), config, ATTEMPTS, RETRIES);
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < WRITERS; number++) {
            int writer = number;
            Thread thread = new Thread(() -> write(client, writer));
            thread.start();
            threads.add(thread);
        }
        System.in.readAllBytes();
        isOver = true;
        for (Thread thread : threads) {
            thread.join();
        }
        long lost = acknowledged.stream()
            .filter(key -> !key.substring(key.indexOf(':') + 1).equals(read(client, key)))
            .count();
        String kinds = errors.entrySet().stream()
            .map(entry -> "\"" + entry.getKey() + "\": " + entry.getValue())
            .collect(Collectors.joining(", ", "{", "}"));
        System.out.printf(
            "{\"client\": \"Jedis %s\", \"acknowledged\": %d, \"errors\": %s, \"lost\": %d, "
                + "\"longest_ms\": %d}%n",
            version(), acknowledged.size(), kinds, lost, longestMs);
        client.close();
    }
}
