-- uses: common statistics queues limits ending
-- What workers have to say about transactions that they hold. Who has lost the lease changes nothing.
--
-- KEYS[1]     prefix of the partition
-- ARGV[1…]    for each transaction:
--               kind, tx, token, seq, note,
--               count of fields (names and values), name, value, …,
--               count of trail entries, entry, …,
--               count of outbox words, destination, payload, …,
--               count of arguments, argument, …
--   kind      what follows                   arguments
--   keep      it is still held               -
--   queue     a worker is to take it         queue (Admin, Out, In), group
--   sleep     it sleeps                      ms, 1 if a step is tried again
--   wait      it waits for a switch          name, ms or 0 for ever, what it saw: '=<value>', or '-' for nothing
--   join      it waits for children          hurry (0|1), then for each child:
--                                            slot, pipeline, version, path, group ('' each for what its head says),
--                                            input, depth. A field wakes_ms says until when
--   end       it has ended                   status, 1 if it is given up
-- Reply       for each: 'ok'; 'cancel' (done, and somebody wants it to end); 'lost'; or 'error …'
--
-- seq counts the writes of one holder: one that comes twice (its reply was lost) is answered and not done again.

local reply = {}
local gone = {}
local place = 1

local function next_word()
  place = place + 1
  return ARGV[place - 1]
end

local function next_list()
  local length = tonumber(next_word())
  local list = {}
  for index = 1, length do list[index] = ARGV[place + index - 1] end
  place = place + length
  return list
end

local function write_outbox(words)
  for index = 1, #words, 2 do
    local number = redis.call('HINCRBY', prefix .. 'outboxH', words[index], 1)
    redis.call('RPUSH', prefix .. 'outboxL', number, words[index], words[index + 1])
  end
end

-- ms of the nearer of a delay and the deadline; nil for neither.
local function wake_time(delay_ms, record)
  local due = delay_ms and now + delay_ms
  local deadline = tonumber(record.deadline_ms)
  if deadline and (not due or deadline < due) then due = math.max(deadline, now) end
  return due
end

local function put_to_sleep(tx, due_ms)
  local score = due_ms and string.format('%.0f', due_ms) or '+inf'
  redis.call('ZADD', prefix .. 'sleepingZ', score, tx)
  if due_ms and redis.call('ZRANGE', prefix .. 'sleepingZ', 0, 0)[1] == tx then
    redis.call('PUBLISH', 'tx.agenda', prefix)
  end
end

local function start_child(tx, record, join, child)
  local slot, pipeline, version, path, group, input, depth = unpack(child)
  if version == '' then
    local text = redis.call('HGET', prefix .. 'pipelineH:' .. pipeline, 'active')
    if text then version, group = text:match('^(%S+) (%S+)') end
  elseif group == '' then
    local text = redis.call('HGET', prefix .. 'pipelineH:' .. pipeline, 'v:' .. version)
    group = text and text:match('^(%S+)') or ''
  end
  if version == '' or group == '' then
    redis.call('HSET', state_key(tx), 'c:' .. join .. '.' .. slot, 'failed '
      .. cjson.encode('there is no pipeline ' .. pipeline .. ' (or not this version of it): activate it'))
    return 0
  end
  local id = tx .. '.' .. join .. '.' .. slot
  local now_text = string.format('%.0f', now)
  redis.call('HSET', state_key(id), 'state', 'queued', 'status', 'running', 'owner', record.owner,
    'pipeline', pipeline, 'version', version, 'path', path, 'group', group, 'queue', 'In',
    'priority', record.priority, 'token', 0, 'step', 0, 'data', 0, 'created_ms', now_text, 'queued_ms', now_text,
    'parent', tx, 'join', join, 'slot', slot, 'depth', depth, 'd:0', input)
  redis.call('ZADD', prefix .. 'indexZ', now_text, id)
  redis.call('ZADD', prefix .. 'ownerZ:' .. record.owner, now_text, id)
  push(id, 'In', group, record.owner, tonumber(record.priority))
  count('q', pipeline, group, record.owner)
  return 1
end

-- A report is told to those who listen, and by webhook to those who asked for that.
local function report_progress(tx, record, report)
  tell(tx, record.watched_ms, 'progress')
  if record.webhook and record.webhook_progress == '1' then
    local event = 'progress.' .. redis.call('HINCRBY', state_key(tx), 'progress_n', 1)
    redis.call('HSET', state_key(tx), 'w:' .. event, report)
    redis.call('ZADD', prefix .. 'webhooksZ', string.format('%.0f', now), tx .. ' ' .. event)
    redis.call('PUBLISH', 'tx.webhooks', prefix)
  end
end

local KINDS = {}

function KINDS.keep() end

function KINDS.queue(tx, record, arguments)
  record.group = arguments[2]
  requeue(tx, record, arguments[1], 'group', record.group)
end

function KINDS.sleep(tx, record, arguments)
  if arguments[2] == '1' then disown(tx, record) end
  redis.call('HSET', state_key(tx), 'state', 'sleeping', 'queue', 'Out')
  if arguments[2] == '1' then count('r', record.pipeline, record.group, record.owner) end
  put_to_sleep(tx, wake_time(tonumber(arguments[1]), record))
end

function KINDS.wait(tx, record, arguments)
  local name, timeout_ms = arguments[1], tonumber(arguments[2])
  local switch = redis.call('HGET', state_key(tx), 's:' .. name)
  redis.call('HSET', state_key(tx), 'awaits', name, 'timed_out', '')
  local seen = switch and '=' .. switch:sub(2) or '-'
  if seen ~= arguments[3] then
    requeue(tx, record, 'Out')
    return
  end
  redis.call('HSET', state_key(tx), 'state', 'waiting', 'queue', 'Out')
  put_to_sleep(tx, wake_time(timeout_ms > 0 and timeout_ms or nil, record))
end

function KINDS.join(tx, record, arguments)
  disown(tx, record)
  local join = string.format('%.0f', (tonumber(record.join_last) or 0) + 1)
  local pending, has_failed = 0, false
  for index = 2, #arguments, 7 do
    local child = {}
    for offset = 0, 6 do child[offset + 1] = arguments[index + offset] end
    local started = start_child(tx, record, join, child)
    pending = pending + started
    has_failed = has_failed or started == 0
  end
  redis.call('HSET', state_key(tx), 'state', 'joining', 'join_last', join, 'pending', pending,
    'hurry', arguments[1], 'width', (#arguments - 1) / 7, 'queue', 'Out')
  if pending == 0 or (has_failed and arguments[1] == '1') then
    requeue(tx, record, 'Out')
  else
    local limit_ms = tonumber(record.wakes_ms)
    local due_ms = wake_time(limit_ms and limit_ms - now, record)
    if due_ms then put_to_sleep(tx, due_ms) end
  end
end

KINDS['end'] = function(tx, record, arguments, note, fields)
  finish(tx, record, arguments[1], note, arguments[2] == '1', fields)
end

local NEEDED = {}
for _, name in ipairs(FOR_ENDING) do NEEDED[#NEEDED + 1] = name end
NEEDED[#NEEDED + 1] = 'webhook_progress'

local function settle(kind, tx, token, seq, note, fields, entries, outbox, arguments)
  local record = fields_of(tx, NEEDED)
  if record.token ~= token then return 'lost' end
  if (tonumber(record.seq) or 0) >= tonumber(seq) then return 'ok' end
  if record.state ~= 'running' then return 'lost' end
  if not KINDS[kind] then error('there is no kind ' .. kind) end
  if kind == 'end' and not ENDINGS[arguments[1]] then error('no transaction ends as ' .. tostring(arguments[1])) end
  fields[#fields + 1], fields[#fields + 2] = 'seq', seq
  local report
  for index = 1, #fields, 2 do
    record[fields[index]] = fields[index + 1]
    if fields[index] == 'progress' then report = fields[index + 1] end
  end
  if kind ~= 'end' then redis.call('HSET', state_key(tx), unpack(fields)) end
  if report then report_progress(tx, record, report) end
  for _, entry in ipairs(entries) do trail(tx, entry) end
  if #outbox > 0 then write_outbox(outbox) end
  if kind == 'keep' then
    if #entries > 0 then tell(tx, record.watched_ms, 'step') end
  else
    if record.limits and record.limits ~= '' then
      leave_limits(record.limits)
      redis.call('HSET', state_key(tx), 'limits', '')
    end
    KINDS[kind](tx, record, arguments, note, fields)
    gone[#gone + 1] = tx -- one that failed on the way keeps its lease, and comes back by that
    if kind ~= 'end' then tell(tx, record.watched_ms, kind) end
  end
  return record.cancel and record.cancel ~= '' and kind ~= 'end' and 'cancel' or 'ok'
end

while place <= #ARGV do
  local kind, tx, token, seq, note = next_word(), next_word(), next_word(), next_word(), next_word()
  local fields, entries, outbox, arguments = next_list(), next_list(), next_list(), next_list()
  local is_settled, answer = pcall(settle, kind, tx, token, seq, note, fields, entries, outbox, arguments)
  if not is_settled then
    answer = 'error ' .. why(answer)
  end
  reply[#reply + 1] = answer
end
if #gone > 0 then
  redis.call('ZREM', prefix .. 'processingZ', unpack(gone))
  redis.call('ZREM', prefix .. 'leasesZ', unpack(gone))
end
save_statistics()
return reply
