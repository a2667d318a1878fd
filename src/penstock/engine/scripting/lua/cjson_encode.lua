-- cjson.encode: Lua values to JSON.
--
-- Chunk argument:  kit      see kit.lua
-- Leaves in it:
--   kit.new_encoder(settings) -> function(value): the text, or an error with cjson's text;
--                                function(): free what an encoding that failed has left
--     settings.encode_max_depth, .encode_number_precision, .encode_invalid_numbers
--     (false, true or 'null'), .sparse_convert, .sparse_ratio, .sparse_safe
--
-- The text is collected in pieces and joined once. Joining prints a number with 14 digits,
-- as cjson does by default, so numbers are pieces too. Keys repeat from value to value: their
-- quoted forms are remembered, up to MAX_KEYS of them.

local kit = ...
local char, concat, find, format, gsub = string.char, table.concat, string.find, string.format, string.gsub
local next, rawget, tostring, type = next, rawget, tostring, type
local fail, null, behind = kit.fail, kit.state.null, kit.behind

local MAX_KEYS, MAX_KEY_SIZE = 2000, 64
-- Pieces beyond this are not kept for the next value.
local MAX_KEPT_PIECES, MAX_KEPT_BYTES = 5000, 65536

-- Anything but: ] to ~, 0 to [, blank, !, # to ., and bytes from 128 on. In this order,
-- since letters and digits are what there is most of.
local TO_ESCAPE = '[^]-~0-[ !#-.\128-\255]'
local ESCAPES = {
  ['"'] = '\\"', ['\\'] = '\\\\', ['/'] = '\\/',
  ['\b'] = '\\b', ['\f'] = '\\f', ['\n'] = '\\n', ['\r'] = '\\r', ['\t'] = '\\t',
  ['\127'] = '\\u007f',
}
for code = 0, 31 do
  local control = char(code)
  ESCAPES[control] = ESCAPES[control] or format('\\u%04x', code)
end

local function quote(text)
  if find(text, TO_ESCAPE) then
    text = gsub(text, TO_ESCAPE, ESCAPES)
  end
  return '"' .. text .. '"'
end

-- '{"key":' and ',"key":' by key.
local first_keys, later_keys, key_count = {}, {}, 0

local function remember(key)
  local quoted = quote(key) .. ':'
  if #key > MAX_KEY_SIZE then
    return '{' .. quoted, ',' .. quoted
  end
  key_count = key_count + 1
  if key_count > MAX_KEYS then
    first_keys, later_keys, key_count = {}, {}, 1
  end
  first_keys[key], later_keys[key] = '{' .. quoted, ',' .. quoted
  return first_keys[key], later_keys[key]
end

local function refuse(kind, problem)
  fail('Cannot serialise ' .. kind .. ': ' .. problem)
end

-- The length of a table as an array, and whether it has no gaps; nothing if it has to be an
-- object.
local function array_length(t, settings)
  local count, max = 0, 0
  for key in next, t do
    count = count + 1
    if key ~= count then
      break
    end
    max = count
  end
  if max == count then
    return max > 0 and max or nil, true
  end
  -- Not 1, 2, 3, …: all keys must be positive integers, with few gaps.
  count, max = 0, 0
  for key in next, t do
    if type(key) ~= 'number' or key <= 0 or key % 1 ~= 0 then
      return nil
    end
    count = count + 1
    if key > max then
      max = key
    end
  end
  if settings.sparse_ratio > 0 and max > count * settings.sparse_ratio and max > settings.sparse_safe then
    if not settings.sparse_convert then
      refuse('table', 'excessively sparse array')
    end
    return nil
  end
  return max, false
end

local INVALID_NAMES = { ['inf'] = 'inf', ['-inf'] = '-inf' }

function kit.new_encoder(settings)
  local pieces, is_busy = {}, false
  local precision

  local function number(x)
    if x - x ~= 0 then
      local mode = settings.encode_invalid_numbers
      if not mode then
        refuse('number', 'must not be NaN or Inf')
      end
      return mode == 'null' and 'null' or INVALID_NAMES[tostring(x)] or 'nan'
    end
    return precision and format(precision, x) or x
  end

  local append

  local function append_array(t, length, is_dense, n, depth)
    pieces[n] = '['
    for i = 1, length do
      if i > 1 then
        n = n + 1
        pieces[n] = ','
      end
      n = append(is_dense and t[i] or rawget(t, i), n, depth)
    end
    n = n + 1
    pieces[n] = ']'
    return n
  end

  local function append_object(t, n, depth)
    local is_first = true
    n = n - 1
    for key, value in next, t do
      local before
      if is_first then
        before = first_keys[key]
      else
        before = later_keys[key]
      end
      if not before then
        local kind = type(key)
        if kind == 'number' then
          before = (is_first and '{"' or ',"') .. number(key) .. '":'
        elseif kind == 'string' then
          local first, later = remember(key)
          before = is_first and first or later
        else
          refuse(kind, 'table key must be a number or string')
        end
      end
      is_first = false
      n = n + 1
      pieces[n] = before
      n = append(value, n, depth)
    end
    n = n + 1
    pieces[n] = is_first and '{}' or '}'
    return n
  end

  -- Adds the value behind piece n; answers the number of the last piece.
  function append(value, n, depth)
    local kind = type(value)
    n = n + 1
    if kind == 'string' then
      if find(value, TO_ESCAPE) then
        value = gsub(value, TO_ESCAPE, ESCAPES)
      end
      pieces[n] = '"' .. value .. '"'
    elseif kind == 'number' then
      pieces[n] = number(value)
    elseif kind == 'table' then
      value = behind[value] or value
      depth = depth + 1
      if depth > settings.encode_max_depth then
        fail('Cannot serialise, excessive nesting (' .. depth .. ')')
      end
      local length, is_dense = array_length(value, settings)
      if length then
        return append_array(value, length, is_dense, n, depth)
      end
      return append_object(value, n, depth)
    elseif kind == 'boolean' then
      pieces[n] = value and 'true' or 'false'
    elseif value == nil or value == null then
      pieces[n] = 'null'
    else
      refuse(kind, 'type not supported')
    end
    return n
  end

  local function drop()
    if is_busy then
      pieces, is_busy = {}, false
    end
  end

  local function encode(value)
    drop()
    local digits = settings.encode_number_precision
    precision = digits ~= 14 and '%.' .. digits .. 'g' or nil
    is_busy = true
    local n = append(value, 0, 0)
    local text = concat(pieces, '', 1, n)
    -- Few pieces are kept, with the strings in them, to spare the next one their growth.
    is_busy = n > MAX_KEPT_PIECES or #text > MAX_KEPT_BYTES
    return text
  end

  return encode, drop
end
