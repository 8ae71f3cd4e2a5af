/*
** lhost.c (kvasir)
** What the program around Lua needs and Lua's interface does not have:
** functions that raise any value, runs within a memory limit, readonly
** tables. They lie in the registry, where no script can see them.
*/

#define lhost_c
#define LUA_LIB

#include "lua.h"

#include "lauxlib.h"
#include "lualib.h"


/* What is to be read of texts takes time, wherever it is read. */
static void countarguments (lua_State *L) {
  size_t bytes = 0;
  int i;
  for (i = lua_gettop(L); i > 0; i--)
    if (lua_type(L, i) == LUA_TSTRING) bytes += lua_objlen(L, i);
  if (bytes > 64) lua_work(L, bytes / 4);
}


/*
** A function of the host, as scripts call it. The host's returns a boolean
** before its results; true says that the next one is an error to be raised.
*/
static int call_host (lua_State *L) {
  int before;
  countarguments(L);
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_insert(L, 1);
  before = lua_setscripted(L, 0);
  lua_call(L, lua_gettop(L) - 1, LUA_MULTRET);
  lua_setscripted(L, before);
  if (lua_toboolean(L, 1)) {
    lua_settop(L, 2);
    return lua_error(L);
  }
  return lua_gettop(L) - 1;
}


/*
** As `call_host', of a function of the host that reads and writes this stack
** itself: it returns the number of its results, which lie on top, or -1 for
** an error that does. The third upvalue keeps what the second points to.
*/
typedef int (*host_Direct) (void *context, lua_State *L);

static int call_direct (lua_State *L) {
  host_Direct f = (host_Direct)lua_touserdata(L, lua_upvalueindex(1));
  int before = lua_setscripted(L, 0);
  int results = f(lua_touserdata(L, lua_upvalueindex(2)), L);
  lua_setscripted(L, before);
  return (results < 0) ? lua_error(L) : results;
}


/* direct(f, context, keeper): f as `call_direct' calls it */
static int host_direct (lua_State *L) {
  luaL_checktype(L, 1, LUA_TLIGHTUSERDATA);
  luaL_checktype(L, 2, LUA_TLIGHTUSERDATA);
  luaL_checktype(L, 3, LUA_TUSERDATA);
  lua_settop(L, 3);
  lua_pushcclosure(L, call_direct, 3);
  return 1;
}


/*
** pcall(f, ...), as Redis has it: of an error that is a table with a text in
** `err', only the text is returned; without arguments it is `true' that is
** called
*/
static int host_pcall (lua_State *L) {
  if (lua_gettop(L) == 0) lua_pushboolean(L, 1);
  lua_pushboolean(L, 1);  /* now, since many results leave no room */
  lua_insert(L, 1);
  if (lua_pcall(L, lua_gettop(L) - 2, LUA_MULTRET, 0) != 0) {
    if (lua_istable(L, -1)) {
      lua_pushliteral(L, "err");
      lua_rawget(L, -2);
      if (lua_isstring(L, -1)) lua_replace(L, -2);
      else lua_pop(L, 1);
    }
    lua_pushboolean(L, 0);
    lua_replace(L, 1);
  }
  return lua_gettop(L);
}


/* wrap(f): f as `call_host' calls it */
static int host_wrap (lua_State *L) {
  luaL_checktype(L, 1, LUA_TFUNCTION);
  lua_settop(L, 1);
  lua_pushcclosure(L, call_host, 1);
  return 1;
}


/* freeze(t): makes t readonly */
static int host_freeze (lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_setreadonly(L, 1);
  return 0;
}


/* limit(bytes): the most there may be while a script runs; 0: no limit */
static int host_limit (lua_State *L) {
  lua_Number limit = luaL_checknumber(L, 1);
  lua_setmemlimit(L, limit > 0 ? (size_t)limit : 0);
  return 0;
}


static const luaL_Reg host_funcs[] = {
  {"host.wrap", host_wrap},
  {"host.direct", host_direct},
  {"host.freeze", host_freeze},
  {"host.limit", host_limit},
  {NULL, NULL}
};


LUALIB_API void luaopen_host (lua_State *L) {
  const luaL_Reg *l;
  for (l = host_funcs; l->name; l++) {
    lua_pushcfunction(L, l->func);
    lua_setfield(L, LUA_REGISTRYINDEX, l->name);
  }
  lua_pushcfunction(L, host_pcall);
  lua_setglobal(L, "pcall");
}
