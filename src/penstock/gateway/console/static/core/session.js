// Who looks, and what they may do. Pages ask `can("operate")` before they offer a button; the gateway asks again.
//
//     const { session, can } = useSession();
//
// `session` is the answer of `GET /v1/session`: { name, kind, may: { observe, operate, … } }.

import { createContext, useContext } from "./view.js";

export const SessionContext = createContext({ session: null, can: () => false, signOut: () => {} });

export const useSession = () => useContext(SessionContext);
