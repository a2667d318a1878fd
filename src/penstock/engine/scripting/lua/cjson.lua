-- The cjson library: its settings, and instances with settings of their own.
--
-- Chunk argument:  kit      see kit.lua; cjson_encode.lua and cjson_decode.lua have run
-- Leaves in it:
--   kit.libraries.cjson
--   kit.reset_cjson()       forget what a script has set: the next one starts afresh, on
--                           whatever process it runs

local kit = ...
local ceil, floor, pairs, select, tostring, type = math.ceil, math.floor, pairs, select, tostring, type
local argument_error, check_number, format = kit.argument_error, kit.number, string.format
local new_encoder, new_decoder = kit.new_encoder, kit.new_decoder

local MAX_INT = 2 ^ 31 - 1
local DEFAULTS = {
  encode_max_depth = 1000,
  encode_number_precision = 14,
  encode_invalid_numbers = false,
  encode_keep_buffer = true,
  sparse_convert = false,
  sparse_ratio = 2,
  sparse_safe = 10,
  decode_max_depth = 1000,
  decode_invalid_numbers = true,
}

local has_changed = false

local function check_count(max, ...)
  if select('#', ...) > max then
    argument_error(max + 1, 'found too many arguments')
  end
end

local function set(settings, name, v)
  settings[name] = v
  has_changed = true
end

-- Each sets what it is given, if it is given anything.

local function set_integer(settings, name, i, v, min, max)
  if v ~= nil then
    v = check_number(i, v)
    v = v < 0 and ceil(v) or floor(v)
    if not (v >= min and v <= max) then
      -- The library says 1 whichever argument it is.
      argument_error(1, format('expected integer between %d and %d', min, max))
    end
    set(settings, name, v)
  end
end

local function set_choice(settings, name, v, allows_null)
  if v ~= nil then
    if v == 'on' or v == 'off' then
      v = v == 'on'
    elseif type(v) ~= 'boolean' and not (allows_null and v == 'null') then
      local kind = type(v)
      if kind ~= 'string' and kind ~= 'number' then
        argument_error(1, 'string expected, got ' .. kind)
      end
      argument_error(1, "invalid option '" .. v .. "'")
    end
    set(settings, name, v)
  end
end

local function integer_setting(settings, name, min, max)
  return function(...)
    check_count(1, ...)
    set_integer(settings, name, 1, (...), min, max)
    return settings[name]
  end
end

local function choice_setting(settings, name, allows_null)
  return function(...)
    check_count(1, ...)
    set_choice(settings, name, (...), allows_null)
    return settings[name]
  end
end

local function single(...)
  if select('#', ...) ~= 1 then
    argument_error(1, 'expected 1 argument')
  end
end

local function check_text(v)
  if type(v) == 'number' then
    return tostring(v)
  end
  argument_error(1, 'string expected, got ' .. type(v))
end

local function reset(settings)
  for name, value in pairs(DEFAULTS) do
    settings[name] = value
  end
end

local function new()
  local settings = {}
  reset(settings)
  local encode, drop = new_encoder(settings)
  local decode = new_decoder(settings)
  local library = {
    encode = function(...)
      single(...)
      return encode((...))
    end,
    decode = function(...)
      single(...)
      local text = ...
      if type(text) ~= 'string' then
        text = check_text(text)
      end
      return decode(text)
    end,
    encode_sparse_array = function(...)
      check_count(3, ...)
      local convert, ratio, safe = ...
      set_choice(settings, 'sparse_convert', convert)
      set_integer(settings, 'sparse_ratio', 2, ratio, 0, MAX_INT)
      set_integer(settings, 'sparse_safe', 3, safe, 0, MAX_INT)
      return settings.sparse_convert, settings.sparse_ratio, settings.sparse_safe
    end,
    encode_max_depth = integer_setting(settings, 'encode_max_depth', 1, MAX_INT),
    decode_max_depth = integer_setting(settings, 'decode_max_depth', 1, MAX_INT),
    encode_number_precision = integer_setting(settings, 'encode_number_precision', 1, 14),
    encode_keep_buffer = choice_setting(settings, 'encode_keep_buffer'),
    encode_invalid_numbers = choice_setting(settings, 'encode_invalid_numbers', true),
    decode_invalid_numbers = choice_setting(settings, 'decode_invalid_numbers'),
    null = kit.state.null,
    _NAME = 'cjson',
    _VERSION = '2.1.0',
  }
  return library, settings, drop
end

local shared, shared_settings, drop_shared = new()
shared.new = function()
  local library = new()
  library.new = shared.new
  return library
end
kit.libraries.cjson = shared

function kit.reset_cjson()
  drop_shared()
  if has_changed then
    has_changed = false
    reset(shared_settings)
  end
end
