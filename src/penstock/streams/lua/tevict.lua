-- uses: common groups retention
-- TEVICT: remove old messages.
--
-- KEYS[1..8]  the stream and its side keys (common.lua)
-- ARGV        what follows the key in the command: `offset`, `-count` or `AGE ms`, then perhaps `ACKED`
-- Reply       how many messages were removed

local function parse()
  local ask, place = {}, 2
  if ARGV[1]:upper() == 'AGE' then
    if not ARGV[2] then common.syntax_error() end
    ask.age_ms, place = common.whole(ARGV[2]), 3
  elseif ARGV[1]:sub(1, 1) == '-' then
    ask.count = common.whole(ARGV[1]:sub(2))
  else
    ask.offset = common.offset(ARGV[1])
  end
  if ARGV[place] then
    if ARGV[place]:upper() ~= 'ACKED' or #ARGV > place then common.syntax_error() end
    ask.is_sparing = true
  end
  return ask
end

local function last_to_go(self, ask, now)
  if ask.offset then return ask.offset end
  if ask.age_ms then return common.before_time(self, now - ask.age_ms, common.LARGEST) end
  return ask.count > 0 and common.before_newest(self, ask.count) or 0
end

return common.run(function()
  local ask = parse()
  local now = common.now_ms()
  local self = common.open(0)
  if not self.token then return 0 end
  local upto = last_to_go(self, ask, now)
  if ask.is_sparing then upto = math.min(upto, groups.done_with(self, now)) end
  local removed = common.evict_to(self, upto)
  common.save(self)
  return removed
end)
