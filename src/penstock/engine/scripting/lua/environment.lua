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
--   kit.proxies             all read-only proxies, which must be empty between two scripts
--
-- The functions below differ from Lua's own for one of these reasons:
--   read-only tables are empty proxies, which raw access has to look through
--   a chunk may not be bytecode, and its name must outlive its compilation
--   some arguments make the interpreter of Lua 5.1 crash or hang

local kit = ...
local error, getmetatable, getinfo, loadstring = error, getmetatable, debug.getinfo, loadstring
local next, pairs, rawget, rawset, select, setfenv = next, pairs, rawget, rawset, select, setfenv
local setmetatable, tostring, type, unpack = setmetatable, tostring, type, unpack
local byte, concat, dump, gsub, match = string.byte, table.concat, string.dump, string.gsub, string.match
local find, gfind, gmatch, rep = string.find, string.gfind, string.gmatch, string.rep
local foreach, insert, maxn, collectgarbage = table.foreach, table.insert, table.maxn, collectgarbage
local keep_frames = kit.host.keep_frames
local behind, fail, argument_error, readonly = kit.behind, kit.fail, kit.argument_error, kit.readonly

-- Matching recurses on the C stack once an item of the pattern: this keeps it small.
local MAX_PATTERN = 8192
-- unpack does not survive its own overflow check.
local MAX_UNPACK = 7999

local function refuse_change()
  error('Attempt to modify a readonly table', 0)
end

local function check_table(t, count)
  if type(t) ~= 'table' then
    argument_error(1, 'table expected, got ' .. (count == 0 and 'no value' or type(t)))
  end
end

------------------------------------------------------------------------- tables, raw access

local function guarded_next(...)
  local t, key = ...
  check_table(t, select('#', ...))
  return next(behind[t] or t, key)
end

local function guarded_pairs(...)
  local t = ...
  check_table(t, select('#', ...))
  if behind[t] then
    return guarded_next, t, nil
  end
  return next, t, nil
end

local function guarded_rawget(t, key)
  return rawget(behind[t] or t, key)
end

local function guarded_rawset(t, key, value)
  if behind[t] then
    refuse_change()
  end
  return rawset(t, key, value)
end

local function guarded_setmetatable(t, meta)
  if behind[t] then
    refuse_change()
  end
  return setmetatable(t, meta)
end

local function guarded_insert(t, ...)
  if behind[t] then
    refuse_change()
  end
  return insert(t, ...)
end

local function guarded_foreach(t, f)
  return foreach(behind[t] or t, f)
end

local function guarded_unpack(t, first, last)
  if last == nil and type(t) == 'table' then
    last = #t
  end
  if type(last) == 'number' and last - (type(first) == 'number' and first or 1) >= MAX_UNPACK then
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

local function guarded_find(s, pattern, init, plain)
  if not plain then
    check_pattern(pattern)
  end
  return find(s, pattern, init, plain)
end

local function guarded_match(s, pattern, init)
  check_pattern(pattern)
  return match(s, pattern, init)
end

local function guarded_gmatch(s, pattern)
  check_pattern(pattern)
  return gmatch(s, pattern)
end

local function guarded_gsub(s, pattern, replacement, limit)
  check_pattern(pattern)
  if replacement == nil then
    argument_error(3, 'string/function/table expected')
  end
  return gsub(s, pattern, replacement, limit)
end

local function guarded_rep(s, n)
  if s == '' then
    n = 0
  elseif type(s) == 'string' and type(n) == 'number' and #s * n > kit.host.memory_limit then
    error('not enough memory', 0)
  end
  return rep(s, n)
end

local function guarded_dump(f)
  if type(f) == 'function' and getinfo(f, 'S').source == '=(lib)' then
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

local function guarded_collectgarbage(option, argument)
  local answer = COLLECTOR_ANSWERS[option]
  if answer then
    return answer
  end
  return collectgarbage(option, argument)
end

---------------------------------------------------------------------------- the global table

local function copy(names, from, with)
  local t = {}
  for name in string.gmatch(names, '%w+') do
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
    gfind = gfind and guarded_gmatch,
    gmatch = guarded_gmatch,
    gsub = guarded_gsub,
    match = guarded_match,
    rep = guarded_rep,
  }),
  table = copy('concat foreachi getn remove setn sort', table, {
    foreach = guarded_foreach,
    insert = guarded_insert,
    maxn = maxn,
  }),
}

local globals = copy('_VERSION assert error gcinfo getmetatable ipairs rawequal select tonumber tostring type', _G, {
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

local proxies = {}
for name, t in pairs(tables) do
  globals[name] = readonly(t)
  proxies[#proxies + 1] = globals[name]
end
setmetatable(globals, { __index = refuse_unknown })
local shown = readonly({ __index = refuse_unknown })
environment = readonly(globals, { __metatable = shown })
globals._G = environment
proxies[#proxies + 1] = environment
proxies[#proxies + 1] = shown

-- ("x"):rep(3) finds the guarded functions, and getmetatable("") only a copy.
local strings = getmetatable('')
strings.__index = tables.string
strings.__metatable = readonly({ __index = globals.string })
proxies[#proxies + 1] = strings.__metatable
kit.proxies = proxies

-- A stray access of our own chunks, or a chunk compiled elsewhere, finds nothing.
for _, name in pairs({ 'debug', 'io', 'os', 'package', 'python', 'require', 'module' }) do
  _G[name] = nil
end
local nothing = _G
for name in pairs(nothing) do
  nothing[name] = nil
end
