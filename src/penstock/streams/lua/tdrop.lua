-- uses: common groups retention compaction
-- TDROP: remove messages by their offsets, wherever they are; what a group has pending stays.
--
-- KEYS[1..8]  the stream and its side keys (common.lua)
-- ARGV        items: offsets and ranges `first-last`
-- Reply       how many messages were removed

local function drop(self, ids, low, high)
  local removed = 0
  while low <= high do
    local rows = common.range(self, low, high, common.CHUNK)
    local going, bytes = {}, 0
    for _, row in ipairs(rows) do
      local offset, tag, entry = common.message(row)
      if not groups.is_pending(self, ids, offset) then
        going[#going + 1] = row[1]
        bytes = bytes + common.size(tag, entry)
        compaction.forget_tag(self, tag)
      end
      low = offset + 1
    end
    removed = removed + common.remove(self, going, bytes)
    if #rows < common.CHUNK then break end
  end
  return removed
end

return common.run(function()
  local items = common.items(1)
  local self = common.open(0)
  if not self.token then return 0 end
  common.ensure(self)
  local ids = groups.busy_ids(self, common.now_ms())
  local removed = 0
  for _, item in ipairs(items) do
    removed = removed + drop(self, ids, math.max(item[1], self.first), math.min(item[2], self.last))
  end
  common.save(self)
  return removed
end)
