-- Known tricks against the sandbox of scripts, one a line; comments are not.
-- A trick answers 'escaped' if it has got hold of something that no script may have. The others want all of the time or
-- the memory, or crash what they are given to. Read by lua_scripts.py, which takes them for its seeds as well.
if os and (os.execute or os.getenv or os.exit or os.remove or os.tmpname) then return 'escaped' end
if io or package or debug and debug.getregistry or python or lupa or ffi or jit then return 'escaped' end
for _, n in ipairs({'dofile', 'loadfile', 'require', 'module', 'newproxy'}) do if _G[n] then return 'escaped' end end
local f = load or loadstring; local g = f('return os') local r = g and g() if type(r) == 'table' and r.execute then return 'escaped' end
local f = loadstring(string.dump(function() return 1 end)) if f then return 'escaped' end
local f = load(function() return '\27Lua' end) if f then return 'escaped' end
local m = getmetatable('') if type(m) == 'table' then m.__index = function() return 1 end return 'escaped' end
local m = getmetatable(_G) if m and pcall(rawset, m, '__index', nil) and pcall(function() x = 1 end) then return 'escaped' end
if pcall(rawset, _G, 'escaped', 1) and rawget(_G, 'escaped') then return 'escaped' end
if pcall(rawset, string, 'rep', 1) and type(string.rep) ~= 'function' then return 'escaped' end
if pcall(function() redis.call = nil end) and not redis.call then return 'escaped' end
if getfenv and pcall(getfenv, 0) and getfenv(0) ~= _G then return 'escaped' end
if setfenv and pcall(setfenv, 0, {}) then return 'escaped' end
local p = setmetatable({}, {__gc = function() x = 1 end}) p = nil collectgarbage()
local t = setmetatable({}, {__metatable = false}) if getmetatable(t) then return 'escaped' end
for k, v in pairs(_G) do if type(v) == 'userdata' then return 'escaped' end end
for k, v in pairs(redis) do local ok, a = pcall(function() return v.__class__ end) if ok and a then return 'escaped' end end
local ok, a = pcall(function() return redis.call.__globals__ end) if ok and a then return 'escaped' end
local ok, a = pcall(function() return cjson.null.__class__ end) if ok and a then return 'escaped' end
local ok, e = pcall(redis.call, 'crash') if type(e) == 'userdata' then return 'escaped' end
local ok, e = xpcall(function() redis.call({}) end, function(e) return e end) if type(e) == 'userdata' then return 'escaped' end
while true do pcall(function() while true do end end) end
local co = coroutine.wrap(function() while true do coroutine.yield() end end) while true do co() end
local function f() return pcall(f) end while true do f() end
return string.find(string.rep('a', 2e6), string.rep('a?', 2e6))
return string.match(string.rep('(', 5000), string.rep('%b()', 100))
local s = 'x' while true do s = s .. s end
return #string.rep('x', 2^31)
return #string.rep(string.rep('x', 2^20), 2^20)
local t = {} for i = 1, 1e9 do t[i] = {i} end
local t = {} while true do t[#t + 1] = string.rep('y', 100000) .. #t end
return table.concat({string.rep('z', 1e6)}, ',', 1, 1e9)
local t = {} for i = 1, 1e6 do t[i] = i end return {unpack(t)}
return string.format('%99999999d', 1)
local function f(n) return 1 + f(n + 1) end return f(1)
local function f() return coroutine.wrap(f)() end return f()
local t = {} t.t = t return t
local t = {} for i = 1, 100000 do t = {t} end return t
return cjson.encode(setmetatable({}, {__index = function(t, k) return t end}))
return cjson.decode(string.rep('[', 100000))
return cjson.encode(cjson.decode('[' .. string.rep('1,', 1000) .. '1e999]'))
local t = {} for i = 1, 2000 do t = {t} end return cjson.encode(t)
local t = {} t[1] = t return cjson.encode(t)
return cjson.decode('{"\\ud800":1}')
return cmsgpack.unpack(string.rep('\145', 100000))
return cmsgpack.unpack('\221\255\255\255\255')
return cmsgpack.unpack('\219\255\255\255\255x')
local t = {} for i = 1, 2000 do t = {t} end return cmsgpack.pack(t)
return cmsgpack.unpack_limit(cmsgpack.pack(1, 2, 3), 2^40, -1)
return struct.pack(string.rep('i8', 5000), 1)
return struct.unpack('I99999', 'abc')
return struct.unpack('c0', 'abc', 2^31)
return struct.pack('>!16 i4 s c0', 1, 'x', 'y')
return struct.size('s')
return bit.tohex(2^53, -2147483648)
return bit.lshift(1, 2^31) + bit.bor(0/0, 1/0)
return redis.sha1hex(string.rep('x', 1e6))
redis.log(redis.LOG_WARNING, string.rep('x', 1e6))
return redis.error_reply(string.rep('x', 100000))
redis.setresp(3) return {double = 0/0, map = {a = {b = {c = 1}}}}
return redis.call('echo', string.rep('x', 1e6))
return redis.call('set', 'k', string.rep('x', 2^24))
return {redis.call(unpack({'echo', 'a', 'b', string.rep('c', 1e5)}))}
return unpack({}, 1, 1e8)
return select('#', unpack({}, 0, 8000))
return select(-1, 1) or select(2^53, 1)
return tostring(setmetatable({}, {__tostring = function() return {} end}))
return math.random(2^60) + math.random(-2^60, 2^60)
table.sort({3, 1, 2, 5, 4}, function() return true end)
for k in pairs(setmetatable({}, {__pairs = error})) do end return next({}, 'none')
goto escaped; do return 'x' end ::escaped:: return 1
