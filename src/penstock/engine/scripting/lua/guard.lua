-- What ends a script that must not go on, and the functions that could stand in its way.
--
-- Chunk argument:  kit      see kit.lua
-- Uses:            kit.host.tick(instructions) -> true if the script must end
-- Leaves in it:
--   kit.guarded             pcall, xpcall and the coroutine functions for scripts
--   kit.charge()            count a call whose work is not seen as instructions
--   kit.abort()             end the running script; no pcall of it can catch that
--   kit.watch(count)        begin a run that is looked at every `count` instructions
--   kit.unwatch()           end it
--
-- How a script is looked at. Lua counts instructions and calls a hook. Hooks belong to a
-- coroutine, and a coroutine may be short, so:
--   main thread     a hook every `count` instructions asks the host
--   coroutines      a hook every SLICE instructions, and every resume, adds to a counter
--                   that asks the host when it reaches `count`
-- How a script ends. The hook raises an error. pcall, xpcall, coroutine.resume and .wrap
-- are the only places of Lua 5.1 that catch one (load is ours): they raise it again while
-- state.aborted is set. From then on the hook also runs at every instruction of the script.
-- What cannot be ended, here as in Redis, is a single call into C, such as a search for a
-- pattern that makes it try for hours.

local kit = ...
local error, getinfo, select, type = error, debug.getinfo, select, type
local next, pairs, sethook = next, pairs, debug.sethook
local raw_pcall, raw_xpcall = pcall, xpcall
local raw_create, raw_resume = coroutine.create, coroutine.resume
local host_tick, state, behind = kit.host.tick, kit.state, kit.behind
local blame, tidy, fail, argument_error = kit.blame, kit.tidy, kit.fail, kit.argument_error

local LIBRARY = '=(lib)'
local SLICE = 1000
local ABORTED = 'script aborted'

local period = 100000
local unreported = 0
local has_coroutines = false

-- Our own code may still run to its end; the script's may not.
local function end_now()
  local running = getinfo(2, 'S')
  if running and running.source ~= LIBRARY then
    error(ABORTED, 0)
  end
end

local function abort()
  state.aborted = true
  sethook(end_now, '', 1)
  error(ABORTED, 0)
end
kit.abort = abort

local function tick()
  if host_tick(period) then
    abort()
  end
end

local function charge()
  unreported = unreported + SLICE
  if unreported >= period then
    unreported = 0
    tick()
  end
end
kit.charge = charge

-- The interpreter keeps hooks in a table of its own, by address of the coroutine, and
-- never forgets one. It is emptied after a run that had coroutines.
local hooks
sethook(tick, '', period)
for key, value in pairs(debug.getregistry()) do
  if type(key) == 'userdata' and type(value) == 'table' then
    local _, hook = next(value)
    if hook == tick then
      hooks = value
    end
  end
end
sethook()
if not hooks then
  error('the hook table was not found')
end

function kit.watch(count)
  state.aborted = false
  period = count
  unreported = 0
  sethook(tick, '', count)
end

-- The hook of the main thread may stay: the host answers it while no script runs.
function kit.unwatch()
  if state.aborted then
    state.aborted = false
    sethook()
  end
  if has_coroutines then
    has_coroutines = false
    for key in pairs(hooks) do
      hooks[key] = nil
    end
  end
end

----------------------------------------------------------------------- pcall and xpcall

-- Whether an error must not be caught: the script is to end, or the host itself failed.
local function is_final(e)
  if type(e) == 'userdata' and e ~= state.null then
    state.aborted = true
  end
  return state.aborted
end

-- Redis's pcall hands out the text of an error table.
local function settle(ok, e, ...)
  if ok then
    return ok, e, ...
  end
  if is_final(e) then
    error(e, 0)
  end
  if type(e) == 'table' and not behind[e] then
    local text = e.err
    if text ~= nil then
      return false, text
    end
  end
  return false, tidy(e)
end

local function guarded_pcall(...)
  local count = select('#', ...)
  if count == 1 then
    return settle(raw_xpcall((...), blame))
  elseif count == 0 then
    return false, 'attempt to call a boolean value'
  end
  return settle(raw_pcall(...))
end

local function settle_handled(ok, e, ...)
  if not ok and is_final(e) then
    error(e, 0)
  end
  return ok, e, ...
end

local function guarded_xpcall(...)
  local f, handler = ...
  if select('#', ...) < 2 then
    argument_error(2, 'value expected')
  end
  -- An error raised by a hook reaches the handler with hooks switched off: the script's
  -- own handler could then run for ever, and is not called.
  return settle_handled(raw_xpcall(f, function(e)
    if is_final(e) then
      return e
    end
    return handler(blame(e))
  end))
end

----------------------------------------------------------------------------- coroutines

local function create(f)
  if type(f) ~= 'function' or getinfo(f, 'S').what == 'C' then
    argument_error(1, 'Lua function expected')
  end
  local co = raw_create(f)
  has_coroutines = true
  sethook(co, charge, '', SLICE)
  return co
end

local function settle_resume(ok, e, ...)
  if ok then
    return ok, e, ...
  end
  if is_final(e) then
    abort()
  end
  return false, tidy(e)
end

local function resume(co, ...)
  if type(co) ~= 'thread' then
    argument_error(1, 'coroutine expected')
  end
  charge()
  return settle_resume(raw_resume(co, ...))
end

local function settle_wrap(ok, e, ...)
  if ok then
    return e, ...
  end
  if is_final(e) then
    abort()
  end
  if type(e) == 'string' then
    fail(tidy(e))
  end
  error(e, 0)
end

local function wrap(f)
  local co = create(f)
  return function(...)
    charge()
    return settle_wrap(raw_resume(co, ...))
  end
end

kit.guarded = {
  pcall = guarded_pcall,
  xpcall = guarded_xpcall,
  create = create,
  resume = resume,
  wrap = wrap,
}
