/*
** What the program around Lua needs and Lua's interface does not have:
** functions that raise any value, runs within a memory limit, readonly
** tables. They lie in the registry, where no script can see them.
*/

#define lua_host_c
#define LUA_CORE
#define LUA_LIB

#include <time.h>

#include "lua.h"

#include "lauxlib.h"
#include "ldebug.h"
#include "ldo.h"
#include "lgc.h"
#include "lobject.h"
#include "lstate.h"
#include "lualib.h"


/*
** Raises an error for a readonly table. These bind `luaV_settable' and the
** libraries; the host's own `lua_rawset' and the like may still write.
*/
LUA_API void luaL_checkwritable (lua_State *L, int narg) {
  StkId o = L->base + (narg - 1);
  if (o < L->top && ttistable(o) && hvalue(o)->readonly) {
    lua_pushliteral(L, LUA_READONLYMSG);
    lua_error(L);
  }
}


/*
** Whether it is a script that allocates now, or the host; returns what it
** was before
*/
LUA_API int lua_setscripted (lua_State *L, int scripted) {
  int before = G(L)->scripted;
  G(L)->scripted = cast_byte(scripted);
  return before;
}


/* The collector works as in a new state, whatever a script told it */
LUA_API void lua_settlegc (lua_State *L) {
  global_State *g = G(L);
  g->gcpause = LUAI_GCPAUSE;
  g->gcstepmul = LUAI_GCMUL;
  if (g->GCthreshold == MAX_LUMEM)  /* stopped */
    g->GCthreshold = g->totalbytes;
}


/* Whether scripts have less than a quarter of their memory left */
int host_isnearlimit (global_State *g) {
  return g->memlimit != 0 && g->totalbytes > g->memlimit - g->memlimit / 4;
}


/*
** When the next cycle of the collector starts: before scripts reach their
** limit, since without memory they fail, however much of it is garbage. Where
** what is alive comes near the limit it starts when a part of the room that is
** left is used: one that always runs takes a step with each string, and a step
** may be a table
*/
size_t host_threshold (global_State *g) {
  lu_mem most = g->memlimit - g->memlimit / 4;
  lu_mem threshold = (g->estimate/100) * g->gcpause;
  lu_mem room = (g->totalbytes < g->memlimit) ? g->memlimit - g->totalbytes
                                              : g->memlimit / 4;
  if (g->memlimit == 0 || threshold <= most) return threshold;
  return host_isnearlimit(g) ? g->totalbytes + room / 4 : most;
}


/* `lua_checkstack' says that there is no room; it doesn't raise that */
void host_growstack (lua_State *L, void *size) {
  luaD_growstack(L, *(int *)size);
}


/*
** What new states tell of each block that they take, resize or free; one for
** the process, so that each state tells all of its blocks
*/
static lua_Tally tally_of_new_states = NULL;


LUA_API void lua_settally (lua_Tally tally) {
  __atomic_store_n(&tally_of_new_states, tally, __ATOMIC_RELAXED);
}


lua_Tally luaM_tally (void) {
  return __atomic_load_n(&tally_of_new_states, __ATOMIC_RELAXED);
}


/*
** Counts work in C as so many instructions, so that the count hook is called
** as often in time whatever a script does. Where they are used up it is called
** at the next instruction
*/
LUA_API void luaD_work (lua_State *L, size_t work) {
  if ((L->hookmask & LUA_MASKCOUNT) && L->hookcount > 1)
    L->hookcount = (work < cast(size_t, L->hookcount))
                   ? L->hookcount - cast_int(work) : 1;
}


/*
** The same for loops in C that may take long: where the instructions are used
** up it calls the count hook, which may end the script
*/
LUA_API void lua_work (lua_State *L, size_t work) {
  luaD_work(L, work);
  if ((L->hookmask & LUA_MASKCOUNT) && L->hookcount <= 1) {
    resethookcount(L);
    luaD_callhook(L, LUA_HOOKCOUNT, -1);
  }
}


/*
** A coroutine goes on with the hook, and the instructions left, of who resumes
** it, who goes on with what it leaves: without that each new one has as many
** again, and those that it resumes, until the hook comes
*/
LUA_API void lua_handhook (lua_State *from, lua_State *to) {
  to->hook = from->hook;
  to->hookmask = from->hookmask;
  to->basehookcount = from->basehookcount;
  to->hookcount = from->hookcount;
}


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
  hvalue(L->base)->readonly = 1;
  return 0;
}


/* limit(bytes): the most there may be while a script runs; 0: no limit */
static int host_limit (lua_State *L) {
  lua_Number limit = luaL_checknumber(L, 1);
  G(L)->memlimit = limit > 0 ? (size_t)limit : 0;
  return 0;
}


static const luaL_Reg host_funcs[] = {
  {"host.wrap", host_wrap},
  {"host.direct", host_direct},
  {"host.freeze", host_freeze},
  {"host.limit", host_limit},
  {NULL, NULL}
};


LUA_API void luaopen_host (lua_State *L) {
  const luaL_Reg *l;
  for (l = host_funcs; l->name; l++) {
    lua_pushcfunction(L, l->func);
    lua_setfield(L, LUA_REGISTRYINDEX, l->name);
  }
  lua_pushcfunction(L, host_pcall);
  lua_setglobal(L, "pcall");
}


/* os.clock(): all that there is of this library */
static int os_clock (lua_State *L) {
  lua_pushnumber(L, (lua_Number)clock() / (lua_Number)CLOCKS_PER_SEC);
  return 1;
}


static const luaL_Reg os_funcs[] = {
  {"clock", os_clock},
  {NULL, NULL}
};


LUALIB_API int luaopen_os (lua_State *L) {
  luaL_register(L, LUA_OSLIBNAME, os_funcs);
  return 1;
}


/* Libraries that are not built, and for whose names `mlua' links */
static int left_out (lua_State *L) {
  return luaL_error(L, "this library is not built");
}

LUALIB_API int luaopen_io (lua_State *L) { return left_out(L); }
LUALIB_API int luaopen_debug (lua_State *L) { return left_out(L); }
LUALIB_API int luaopen_package (lua_State *L) { return left_out(L); }
