// The pages, by their addresses. A page is a component that gets its route: { params, query, place }.

import { Channel } from "./channel.js";
import { Channels } from "./channels.js";
import { DataPipeline } from "./data.js";
import { Delivery } from "./delivery.js";
import { LakeTable } from "./lake_table.js";
import { NodeGroups } from "./node_groups.js";
import { Overview } from "./overview.js";
import { Pipeline } from "./pipeline.js";
import { Pipelines } from "./pipelines.js";
import { Server } from "./server.js";
import { Stream } from "./stream.js";
import { StreamGroup } from "./stream_group.js";
import { Streams } from "./streams.js";
import { Transaction } from "./transaction.js";
import { Transactions } from "./transactions.js";
import { Webhook } from "./webhook.js";
import { Webhooks } from "./webhooks.js";

export const PAGES = [
  ["/", Overview],
  ["/transactions", Transactions],
  ["/transactions/:id", Transaction],
  ["/pipelines", Pipelines],
  ["/pipelines/:name", Pipeline],
  ["/node-groups", NodeGroups],
  ["/streams", Streams],
  ["/streams/:name", Stream],
  ["/streams/:name/groups/:group", StreamGroup],
  ["/channels", Channels],
  ["/channels/:name", Channel],
  ["/webhooks", Webhooks],
  ["/webhooks/:id", Webhook],
  ["/deliveries/:id", Delivery],
  ["/data", DataPipeline],
  ["/data/:table", LakeTable],
  ["/server", Server],
];
