//! x
pub fn create(lua: &mlua::Lua) -> mlua::Result<mlua::Table> {
    lua.create_table()
}
