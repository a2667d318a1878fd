-- cjson.decode: JSON to Lua values.
--
-- Chunk argument:  kit      see kit.lua
-- Leaves in it:
--   kit.new_decoder(settings) -> function(text): the value, or an error with cjson's text
--     settings.decode_max_depth, settings.decode_invalid_numbers
--
-- Two readers. The quick one takes a whole member or element with one or two patterns and
-- knows well-formed text without escapes only. Whatever it does not know is looked at by the
-- exact one, `token`, which knows cjson's tokens, numbers and errors.
--
-- Positions count from 1. A zero byte ends the text, as it does in C.

local kit = ...
local byte, char, find, floor, lower = string.byte, string.char, string.find, math.floor, string.lower
local concat, match, pairs, sub, tonumber = table.concat, string.match, pairs, string.sub, tonumber
local fail, null = kit.fail, kit.state.null

local SPACE = '[ \t\n\r]*'
local SPACE_BEFORE = '^' .. SPACE .. '()'

-- The patterns of the quick reader, `_` being where blanks may stand.
--   key             key, first character of its value, the place behind that
--   text, number    value, what ends it, the place behind that
local MEMBER_END, ELEMENT_END = '_([,}])_()', '_([],])_()'
local NUMBER = '^(-?%d+%.?%d*[eE]?[+-]?%d*)'
local PATTERNS = {
  key = '^_"([^"\\]*)"_:_(.)()',
  member_text = '^([^"\\]*)"' .. MEMBER_END,
  member_number = NUMBER .. MEMBER_END,
  member_end = '^' .. MEMBER_END,
  element_text = '^([^"\\]*)"' .. ELEMENT_END,
  element_number = NUMBER .. ELEMENT_END,
  element_end = '^' .. ELEMENT_END,
}

local function with_blanks(blanks)
  local patterns = {}
  for name, pattern in pairs(PATTERNS) do
    patterns[name] = string.gsub(pattern, '_', blanks)
  end
  return patterns
end

-- For texts written without blanks, which are matched faster, and with them.
local COMPACT, SPACED = with_blanks(''), with_blanks(SPACE)

local IS_DIGIT = {}
for digit in string.gmatch('-0123456789', '.') do
  IS_DIGIT[digit] = true
end

------------------------------------------------------------------------------------- strings

local ESCAPES = {
  ['"'] = '"', ['\\'] = '\\', ['/'] = '/',
  b = '\b', f = '\f', n = '\n', r = '\r', t = '\t',
}

local function utf8(code)
  if code < 0x80 then
    return char(code)
  elseif code < 0x800 then
    return char(0xC0 + floor(code / 64), 0x80 + code % 64)
  elseif code < 0x10000 then
    return char(0xE0 + floor(code / 4096), 0x80 + floor(code / 64) % 64, 0x80 + code % 64)
  end
  return char(0xF0 + floor(code / 262144), 0x80 + floor(code / 4096) % 64, 0x80 + floor(code / 64) % 64,
    0x80 + code % 64)
end

-- The character of a \u escape at `at`, and what follows it; nothing if it is malformed.
local function unicode(text, at)
  local digits = match(text, '^\\u(%x%x%x%x)', at)
  local code = digits and tonumber(digits, 16)
  if not code or (code >= 0xDC00 and code < 0xE000) then
    return nil
  elseif code < 0xD800 or code >= 0xE000 then
    return utf8(code), at + 6
  end
  digits = match(text, '^\\u([dD][c-fC-F]%x%x)', at + 6)
  if not digits then
    return nil
  end
  return utf8(0x10000 + (code - 0xD800) * 1024 + tonumber(digits, 16) - 0xDC00), at + 12
end

-- The string whose text begins at `at`, behind its quote: value, what follows it. If it is
-- malformed: nothing, where, why.
local function string_token(text, at)
  local parts, n = {}, 0
  while true do
    local plain, stop, after = match(text, '^([^"\\]*)(["\\]?)()', at)
    n = n + 1
    parts[n] = plain
    if stop == '"' then
      return concat(parts, '', 1, n), after
    elseif stop == '' then
      return nil, after, 'unexpected end of string'
    end
    local escape = sub(text, after, after)
    n = n + 1
    if escape == 'u' then
      parts[n], at = unicode(text, after - 1)
      if not at then
        return nil, after - 1, 'invalid unicode escape code'
      end
    else
      parts[n], at = ESCAPES[escape], after + 1
      if not parts[n] then
        return nil, after - 1, 'invalid escape code'
      end
    end
  end
end

------------------------------------------------------------------------------------- numbers

-- The longest number at `at` as strtod reads it: its text, or nothing.
local function number_text(text, at)
  local sign = match(text, '^[+-]?', at)
  local from = at + #sign
  local digits = match(text, '^0[xX]%x+%.?%x*', from) or match(text, '^0[xX]%.%x+', from)
  if digits then
    return sign .. digits .. (match(text, '^[pP][+-]?%d+', from + #digits) or '')
  end
  digits = match(text, '^%d+%.?%d*', from) or match(text, '^%.%d+', from)
  if digits then
    return sign .. digits .. (match(text, '^[eE][+-]?%d+', from + #digits) or '')
  end
  local word = lower(sub(text, from, from + 7))
  local name = word == 'infinity' and word or match(word, '^inf') or match(word, '^nan')
  return name and sign .. name
end

local NAMED = { inf = 1 / 0, infinity = 1 / 0, nan = -(0 / 0) }

local function number_value(text)
  local named = NAMED[match(text, '%a+$')]
  if not named then
    return tonumber(text)
  end
  return byte(text) == 45 and -named or named
end

-- What JSON does not allow, and the library by its settings: leading zeros, hexadecimal,
-- infinity and NaN.
local function is_lax(text, at)
  return find(text, '^-?0[%dxX]', at) or find(text, '^-?[iI][nN][fF]', at)
    or find(text, '^-?[nN][aA][nN]', at)
end

-------------------------------------------------------------------------------------- tokens

local PUNCTUATION = {
  ['{'] = 'T_OBJ_BEGIN', ['}'] = 'T_OBJ_END', ['['] = 'T_ARR_BEGIN', [']'] = 'T_ARR_END',
  [','] = 'T_COMMA', [':'] = 'T_COLON',
}
local WORDS = { t = 'true', f = 'false', n = 'null' }
local WORD_VALUES = { ['true'] = true, ['false'] = false, null = null }
local WORD_KINDS = { ['true'] = 'T_BOOLEAN', ['false'] = 'T_BOOLEAN', null = 'T_NULL' }

-- The token at or behind `at`: kind, value, what follows it, where it begins. An error token
-- has no value; its kind is what cjson says it found, its begin where cjson says it is.
local function token(text, at, settings)
  at = match(text, SPACE_BEFORE, at)
  local first = sub(text, at, at)
  if first == '' then
    return 'T_END', nil, at, at
  elseif PUNCTUATION[first] then
    return PUNCTUATION[first], nil, at + 1, at
  elseif first == '"' then
    local value, after, problem = string_token(text, at + 1)
    if not value then
      return problem, nil, nil, after
    end
    return 'T_STRING', value, after, at
  end
  local word = WORDS[first]
  if word and sub(text, at, at + #word - 1) == word then
    return WORD_KINDS[word], WORD_VALUES[word], at + #word, at
  end
  local lax = settings.decode_invalid_numbers
  local digits = number_text(text, at)
  if not find(first, '[-%d]') then
    if not lax or not (first == '+' or is_lax(text, at)) then
      return 'invalid token', nil, nil, at
    end
  elseif not lax and is_lax(text, at) then
    digits = nil
  end
  if not digits then
    return 'invalid number', nil, nil, at
  end
  return 'T_NUMBER', number_value(digits), at + #digits, at
end

local function unexpected(wanted, kind, at)
  fail('Expected ' .. wanted .. ' but found ' .. kind .. ' at character ' .. at)
end

local IS_SCALAR = { T_STRING = true, T_NUMBER = true, T_BOOLEAN = true, T_NULL = true }

------------------------------------------------------------------------------------- decoder

local NOTHING = {}

function kit.new_decoder(settings)
  local object, array
  local max_depth, quick_numbers, patterns

  -- The value at `at`, read with all exactness, and what follows it.
  local function value(text, at, depth)
    local kind, scalar, after, begin = token(text, at, settings)
    if IS_SCALAR[kind] then
      return scalar, after
    elseif kind == 'T_OBJ_BEGIN' then
      return object(text, after, depth + 1)
    elseif kind == 'T_ARR_BEGIN' then
      return array(text, after, depth + 1)
    end
    unexpected('value', kind, begin)
  end

  -- A member's key and the place of its value; nothing but a place if the object is empty.
  local function key_at(text, at, is_first)
    local kind, key, after, begin = token(text, at, settings)
    if kind == 'T_OBJ_END' and is_first then
      return nil, after
    elseif kind ~= 'T_STRING' then
      unexpected('object key string', kind, begin)
    end
    local colon, _, value_at, place = token(text, after, settings)
    if colon ~= 'T_COLON' then
      unexpected('colon', colon, place)
    end
    return key, value_at
  end

  -- The same for a value that begins with `first`, at a glance if it can be told from that.
  local function other_value(text, at, depth, first)
    if first == '{' then
      return object(text, at + 1, depth + 1)
    elseif first == '[' then
      return array(text, at + 1, depth + 1)
    end
    local word = WORDS[first] and match(text, '^%l+', at)
    if word and WORD_KINDS[word] then
      return WORD_VALUES[word], at + #word
    end
    return value(text, at, depth)
  end

  -- Whether more follows at `at`, and from where.
  local function separator(text, at, quick, closing, wanted)
    local stop, after = match(text, quick, at)
    if not stop then
      local kind, _, behind, begin = token(text, at, settings)
      stop, after = sub(text, begin, begin), behind
      if kind ~= 'T_COMMA' and stop ~= closing then
        unexpected(wanted, kind, begin)
      end
    end
    return stop == ',', after
  end

  local function check_depth(depth, at)
    if depth > max_depth then
      fail('Found too many nested data structures (' .. depth .. ') at character ' .. at)
    end
  end

  -- Both read from behind the bracket.

  function object(text, at, depth)
    check_depth(depth, at - 1)
    local t, is_first, more = {}, true, true
    while more do
      local key, first, from = match(text, patterns.key, at)
      local scalar, stop, after
      if first == '"' then
        scalar, stop, after = match(text, patterns.member_text, from)
      elseif quick_numbers[first] then
        scalar, stop, after = match(text, patterns.member_number, from - 1)
        scalar = scalar and tonumber(scalar)
      end
      if scalar then
        t[key] = scalar
        more, at = stop == ',', after
      else
        if key then
          t[key], at = other_value(text, from - 1, depth, first)
        else
          key, at = key_at(text, at, is_first)
          if not key then
            return t, at
          end
          t[key], at = value(text, at, depth)
        end
        more, at = separator(text, at, patterns.member_end, '}', 'comma or object end')
      end
      is_first = false
    end
    return t, at
  end

  function array(text, at, depth)
    check_depth(depth, at - 1)
    local t, n, more = {}, 0, true
    at = match(text, SPACE_BEFORE, at)
    if sub(text, at, at) == ']' then
      return t, at + 1
    end
    while more do
      local first = sub(text, at, at)
      local scalar, stop, after
      if first == '"' then
        scalar, stop, after = match(text, patterns.element_text, at + 1)
      elseif quick_numbers[first] then
        scalar, stop, after = match(text, patterns.element_number, at)
        scalar = scalar and tonumber(scalar)
      end
      n = n + 1
      if scalar then
        t[n] = scalar
        more, at = stop == ',', after
      else
        t[n], at = other_value(text, at, depth, first)
        more, at = separator(text, at, patterns.element_end, ']', 'comma or array end')
      end
    end
    return t, at
  end

  return function(text)
    local zero = find(text, '\0', 1, true)
    if zero then
      text = sub(text, 1, zero - 1)
    end
    patterns = (find(text, ': ', 1, true) or find(text, '\n', 1, true)) and SPACED or COMPACT
    max_depth = settings.decode_max_depth
    quick_numbers = settings.decode_invalid_numbers and IS_DIGIT or NOTHING
    local result, at = value(text, 1, 0)
    if at <= #text then
      local kind, _, _, begin = token(text, at, settings)
      if kind ~= 'T_END' then
        unexpected('the end', kind, begin)
      end
    end
    return result
  end
end
