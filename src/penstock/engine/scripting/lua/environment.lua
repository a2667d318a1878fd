-- The global table of scripts: exactly what Redis 7.0 shows, and nothing to break it with.
--
-- Chunk argument:  kit      see kit.lua; guard.lua and the library chunks have run, so that
--   kit.guarded             holds pcall, xpcall, create, resume, wrap
--   kit.libraries           holds redis, cjson, cmsgpack, struct, bit, random, randomseed
-- Uses:            kit.host.keep_frames(dump) -> bytecode, or false if it is good as it is
-- Leaves in it:
--   kit.globals             the table behind _G: KEYS and ARGV are set here
--   kit.compile(source, name)   a function that sees the global table of scripts, or nil
--                           and an error; never bytecode
--
-- The functions below differ from Lua's own for one of these reasons:
--   read-only tables are empty proxies, which raw access has to look through
--   a chunk may not be bytecode, and its name must outlive its compilation
--   some arguments make the interpreter of Lua 5.1 crash or hang

local kit = ...
local error, getmetatable, getinfo, loadstring = error, getmetatable, debug.getinfo, loadstring
local next, pairs, rawget, rawset, select = next, pairs, rawget, rawset, select
local setfenv, setmetatable, tostring, type, unpack = setfenv, setmetatable, tostring, type, unpack
local byte, concat, dump, gsub, match = string.byte, table.concat, string.dump, string.gsub, string.match
local find, gmatch, rep = string.find, string.gmatch, string.rep
local foreach, insert, collectgarbage = table.foreach, table.insert, collectgarbage
local keep_frames, memory_limit = kit.host.keep_frames, kit.host.memory_limit
local charge, int32, number = kit.charge, kit.int32, kit.number
local behind, fail, argument_error, readonly = kit.behind, kit.fail, kit.argument_error, kit.readonly

-- The name of our own chunks, which no other may have.
local LIBRARY = '=(lib)'
-- Matching recurses on the C stack once an item of the pattern: this keeps it small.
local MAX_PATTERN = 8192
-- What unpack is asked for at most: its own check does not survive an overflow.
local MAX_UNPACK = 2 ^ 20

local function refuse_change()
  error('Attempt to modify a readonly table', 0)
end

------------------------------------------------------------------------- tables, raw access

-- Arguments are passed on as "..." so that Lua's own checks see how many there were.

local function guarded_next(...)
  local t, key = ...
  local hidden = t ~= nil and behind[t]
  if hidden then
    return next(hidden, key)
  end
  return next(...)
end

local function guarded_pairs(...)
  local t = ...
  if t ~= nil and behind[t] then
    return guarded_next, t, nil
  end
  return pairs(...)
end

local function guarded_rawget(...)
  local t, key = ...
  local hidden = t ~= nil and behind[t]
  if hidden then
    return rawget(hidden, key)
  end
  return rawget(...)
end

local function guarded_rawset(...)
  local t = ...
  if t ~= nil and behind[t] then
    refuse_change()
  end
  return rawset(...)
end

local function guarded_setmetatable(...)
  local t = ...
  if t ~= nil and behind[t] then
    refuse_change()
  end
  return setmetatable(...)
end

local function guarded_insert(...)
  local t = ...
  if t ~= nil and behind[t] then
    refuse_change()
  end
  return insert(...)
end

local function guarded_foreach(...)
  local t, f = ...
  local hidden = t ~= nil and behind[t]
  if hidden then
    return foreach(hidden, f)
  end
  return foreach(...)
end

local function guarded_unpack(...)
  local t, first, last = ...
  if (last == nil and first == nil) or type(t) ~= 'table' then
    return unpack(...)
  end
  first = first == nil and 1 or int32(number(2, first))
  last = last == nil and #t or int32(number(3, last))
  if last - first > MAX_UNPACK then
    fail('too many results to unpack')
  end
  return unpack(t, first, last)
end

------------------------------------------------------------------------------------ strings

local function check_pattern(pattern)
  if type(pattern) == 'string' and #pattern > MAX_PATTERN then
    fail('malformed pattern (longer than ' .. MAX_PATTERN .. ' characters)')
  end
end

local function guarded_find(...)
  local _, pattern, _, plain = ...
  if not plain then
    check_pattern(pattern)
  end
  return find(...)
end

local function guarded_match(...)
  local _, pattern = ...
  check_pattern(pattern)
  return match(...)
end

local function guarded_gmatch(...)
  local _, pattern = ...
  check_pattern(pattern)
  return gmatch(...)
end

local function guarded_gsub(...)
  local _, pattern = ...
  check_pattern(pattern)
  return gsub(...)
end

-- rep loops once a repetition, in C, without looking at its argument or the memory left.
local function guarded_rep(...)
  local s, n = ...
  if s == '' then
    return rep(s, number(2, n) and 0)
  end
  if type(s) == 'string' and type(n) == 'number' and #s * n > memory_limit then
    error('not enough memory', 0)
  end
  return rep(...)
end

local function guarded_dump(f)
  if type(f) == 'function' and getinfo(f, 'S').source == LIBRARY then
    fail('unable to dump given function')
  end
  return dump(f)
end

------------------------------------------------------------------------------------- chunks

local environment

-- Lua 5.1 does not protect the name of a chunk from the collector while it compiles: here
-- it always is a string without a zero byte, hence the one that our caller holds.
local function compile(source, name)
  name = match(name, '^[^%z]*')
  if name == LIBRARY then
    name = '=(load)'
  end
  if byte(source) == 27 then
    local _, problem = loadstring('\1', name)
    return nil, (gsub(problem, 'char%(1%)', 'char(27)'))
  end
  local chunk, problem = loadstring(source, name)
  if not chunk then
    return nil, problem
  end
  local kept = keep_frames(dump(chunk))
  return setfenv(kept and loadstring(kept, name) or chunk, environment)
end
kit.compile = compile

local function check_string(i, v, count)
  if type(v) == 'number' then
    return tostring(v)
  end
  if type(v) ~= 'string' then
    argument_error(i, 'string expected, got ' .. (i > count and 'no value' or type(v)))
  end
  return v
end

local function guarded_loadstring(...)
  local source, name = ...
  local count = select('#', ...)
  source = check_string(1, source, count)
  if name == nil then
    name = source
  end
  return compile(source, check_string(2, name, count))
end

local function guarded_load(...)
  local reader, name = ...
  local count = select('#', ...)
  if type(reader) ~= 'function' then
    argument_error(1, 'function expected, got ' .. (count == 0 and 'no value' or type(reader)))
  end
  name = name == nil and '=(load)' or check_string(2, name, count)
  local pieces, size = {}, 0
  repeat
    local piece = reader()
    if piece ~= nil and type(piece) ~= 'string' and type(piece) ~= 'number' then
      return nil, 'reader function must return a string'
    end
    if piece == '' then
      piece = nil
    end
    size = size + 1
    pieces[size] = piece
  until piece == nil
  return compile(concat(pieces), name)
end

--------------------------------------------------------------------------------- collector

-- Settings of the collector would outlast the script: they are accepted and ignored.
local COLLECTOR_ANSWERS = { stop = 0, restart = 0, setpause = 200, setstepmul = 200 }

local function guarded_collectgarbage(...)
  local option = ...
  local answer = option ~= nil and COLLECTOR_ANSWERS[option]
  if answer then
    return answer
  end
  charge()
  return collectgarbage(...)
end

---------------------------------------------------------------------------- the global table

local function copy(names, from, with)
  local t = {}
  for name in string.gmatch(names, '[%w_]+') do
    t[name] = from[name]
  end
  for name, value in pairs(with or {}) do
    t[name] = value
  end
  return t
end

local libraries, guarded = kit.libraries, kit.guarded

local tables = {
  redis = libraries.redis,
  cjson = libraries.cjson,
  cmsgpack = libraries.cmsgpack,
  struct = libraries.struct,
  bit = libraries.bit,
  coroutine = copy('running status yield', coroutine, {
    create = guarded.create,
    resume = guarded.resume,
    wrap = guarded.wrap,
  }),
  math = copy('abs acos asin atan atan2 ceil cos cosh deg exp floor fmod frexp huge ldexp log log10 max '
    .. 'min mod modf pi pow rad sin sinh sqrt tan tanh', math, {
    random = libraries.random,
    randomseed = libraries.randomseed,
  }),
  string = copy('byte char format len lower reverse sub upper', string, {
    dump = guarded_dump,
    find = guarded_find,
    gfind = guarded_gmatch,
    gmatch = guarded_gmatch,
    gsub = guarded_gsub,
    match = guarded_match,
    rep = guarded_rep,
  }),
  table = copy('concat foreachi getn maxn remove setn sort', table, {
    foreach = guarded_foreach,
    insert = guarded_insert,
  }),
}

local globals = copy('_VERSION assert error gcinfo getmetatable ipairs rawequal select tonumber tostring '
  .. 'type', _G, {
  __redis__err__handler = kit.handler,
  collectgarbage = guarded_collectgarbage,
  load = guarded_load,
  loadstring = guarded_loadstring,
  next = guarded_next,
  pairs = guarded_pairs,
  pcall = guarded.pcall,
  rawget = guarded_rawget,
  rawset = guarded_rawset,
  setmetatable = guarded_setmetatable,
  unpack = guarded_unpack,
  xpcall = guarded.xpcall,
})
kit.globals = globals

local function refuse_unknown(_, name)
  fail("Script attempted to access nonexistent global variable '" .. tostring(name) .. "'")
end

for name, t in pairs(tables) do
  globals[name] = readonly(t)
end
setmetatable(globals, { __index = refuse_unknown })
environment = readonly(globals, { __metatable = readonly({ __index = refuse_unknown }) })
globals._G = environment

-- ("x"):rep(3) finds the guarded functions, and getmetatable("") only a copy.
local strings = getmetatable('')
strings.__index = tables.string
strings.__metatable = readonly({ __index = globals.string })
