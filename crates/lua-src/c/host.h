/*
** What the program around Lua needs and Lua's interface does not have.
** `lua.h' includes it, once it is edited.
*/

#ifndef host_h
#define host_h

#define LUA_READONLYMSG	"Attempt to modify a readonly table"

/* how many values a function may have on the stack; the host's hold more */
#define HOST_MAXCSTACK(L)	(G(L)->scripted ? LUAI_MAXCSTACK : 1000000)

struct global_State;

LUA_API int lua_setscripted (lua_State *L, int scripted);
LUA_API void lua_settlegc (lua_State *L);
LUA_API void luaD_work (lua_State *L, size_t work);
LUA_API void lua_work (lua_State *L, size_t work);
LUA_API void lua_handhook (lua_State *from, lua_State *to);

/* is told the sizes of a block before and after; 0: there was, is, none */
typedef void (*lua_Tally) (size_t osize, size_t nsize);
LUA_API void lua_settally (lua_Tally tally);
lua_Tally luaM_tally (void);

LUA_API void luaL_checkwritable (lua_State *L, int narg);
LUA_API void luaopen_host (lua_State *L);
void host_growstack (lua_State *L, void *size);
int host_isnearlimit (struct global_State *g);
size_t host_threshold (struct global_State *g);

#endif
