-- The line of blocked readers of a group: who waits longest is served first, and nobody takes it all.
--
-- Needs common.lua and groups.lua. Scripts cannot block: a reader waits outside and asks again with its ticket.
--
--   index    v id ticket<16>   a reader that waits; tickets only grow
--   pending  v id ticket<16>   since when (ms) it did not come although there was something for it
--
-- A reader that is called and does not come for OVERDUE_MS has gone (or has no time), and loses its
-- place. So a reader that died delays the others once, and nobody has to say goodbye.

local OVERDUE_MS = 100

local function place_of(tickets, own)
  for place, member in ipairs(tickets) do
    if member == own then return place end
  end
  return #tickets + 1
end

-- Call those ahead; who was called long ago loses the place.
local function call_ahead(self, tickets, own_place, now)
  for place = 1, own_place - 1 do
    local called = redis.call('HGET', self.pending, tickets[place])
    if not called then
      redis.call('HSET', self.pending, tickets[place], common.text(now))
    elseif tonumber(called) + OVERDUE_MS <= now then
      line.leave(self, tickets[place])
    end
  end
end

function line.leave(self, member)
  redis.call('ZREM', self.index, member)
  redis.call('HDEL', self.pending, member)
end

function line.member(group, ticket)
  return 'v' .. group.id .. common.wide(ticket)
end

-- Enter the line, or stay in it; answers the ticket.
function line.join(self, group, ticket)
  if ticket == 0 then
    common.set(self, 'tickets', self.tickets + 1)
    ticket = self.tickets
  end
  redis.call('ZADD', self.index, 0, line.member(group, ticket))
  return ticket
end

-- How many of the available messages this reader may have now; 0: others were here before.
function line.share(self, group, ticket, available, now)
  local prefix = 'v' .. group.id
  local tickets = redis.call('ZRANGEBYLEX', self.index, '[' .. prefix, '(' .. prefix .. ':')
  local own = line.member(group, ticket)
  local place = place_of(tickets, own)
  redis.call('HDEL', self.pending, own)
  if available >= place then return math.ceil(available / math.max(place, #tickets)) end
  if available > 0 then call_ahead(self, tickets, place, now) end
  return 0
end
