-- What the log amounts to, as rows. Everything but `denials` follows from the log alone.
--
-- Positions are those of the log, times are µs of Unix time, amounts are in the unit of their
-- resource. Blobs are MessagePack. A fact that can end is an interval: it holds from position
-- `opened` on, up to but without position `closed`, or still when `closed` is NULL.

PRAGMA application_id = 0x67707564;  -- "gpud": a projection of gpuledger, and not another file
PRAGMA user_version = 7;             -- another version is deleted and built again

-- One row per record. The last one has the position of the projection, in the same transaction as
-- everything that follows from it.
CREATE TABLE records (
  position INTEGER PRIMARY KEY,
  time     INTEGER NOT NULL,
  hash     BLOB NOT NULL,
  writer   TEXT NOT NULL,
  commands INTEGER NOT NULL            -- how many commands the record answers
) STRICT;

CREATE INDEX records_by_time ON records (time);

-- History: the events of one record that concern one namespace (0: no single one); `body` is a list
-- of `[number in the record, [event, postings]]`, as the record holds them.
CREATE TABLE events (
  position  INTEGER NOT NULL,
  namespace INTEGER NOT NULL,
  body      BLOB NOT NULL,
  PRIMARY KEY (position, namespace)
) STRICT, WITHOUT ROWID;

CREATE INDEX events_by_namespace ON events (namespace, position);

-- Numbers for names, given in the order in which the log names them first.
CREATE TABLE namespaces (
  number  INTEGER PRIMARY KEY,
  cluster TEXT NOT NULL,
  name    TEXT NOT NULL,
  opened  INTEGER NOT NULL,
  UNIQUE (name, cluster)
) STRICT;

CREATE TABLE accounts (
  number INTEGER PRIMARY KEY,
  name   TEXT NOT NULL UNIQUE,
  opened INTEGER NOT NULL
) STRICT;

CREATE TABLE clusters (
  name   TEXT PRIMARY KEY,
  uid    TEXT NOT NULL,
  opened INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The lines of accounts, by the numbers that the log gave them.
CREATE TABLE lines (
  number  INTEGER PRIMARY KEY,
  account INTEGER NOT NULL,
  key     TEXT NOT NULL,
  opened  INTEGER NOT NULL,
  closed  INTEGER
) STRICT;

CREATE INDEX lines_by_account ON lines (account);

-- Which account covers which namespace, when.
CREATE TABLE coverages (
  account   INTEGER NOT NULL,
  namespace INTEGER NOT NULL,
  opened    INTEGER NOT NULL,
  closed    INTEGER,
  PRIMARY KEY (namespace, account, opened)
) STRICT, WITHOUT ROWID;

-- What an account selects, where that is not simply all that it names: `reach` selects the clusters
-- and namespaces that it covers (`null` when it names them), `selects` the objects that it counts in
-- them. JSON: lists of conditions `[key, operator, [value, …]]` that must all hold, those on
-- labels with the number of their key. With `asked_only` it counts envelopes as far as they were
-- asked for.
CREATE TABLE selections (
  account INTEGER NOT NULL,
  reach   TEXT NOT NULL,
  selects TEXT NOT NULL,
  asked_only INTEGER NOT NULL,
  opened  INTEGER NOT NULL,
  closed  INTEGER,
  PRIMARY KEY (account, opened)
) STRICT, WITHOUT ROWID;

-- Balances of an account after a record, until its next row: `[line, limit, used, committed, …]`
-- of its open lines. At most one row per account and record.
CREATE TABLE balances (
  account  INTEGER NOT NULL,
  position INTEGER NOT NULL,
  body     BLOB NOT NULL,
  PRIMARY KEY (account, position)
) STRICT, WITHOUT ROWID;

-- What makes up the charge of a key: open holds (base 0 or a resourceVersion) and the committed
-- object (base -1). A row is never changed but to close it.
CREATE TABLE charges (
  number    INTEGER PRIMARY KEY,       -- in the order of opening
  namespace INTEGER NOT NULL,
  key       TEXT NOT NULL,
  uid       TEXT NOT NULL,
  base      INTEGER NOT NULL,
  version   INTEGER NOT NULL,          -- of an object; 0 for a hold
  demand    BLOB NOT NULL,
  admitted  BLOB,                      -- the part of an object's demand that was let in; NULL for all
  since     INTEGER NOT NULL,          -- time
  owner     TEXT NOT NULL,
  actor     TEXT NOT NULL,
  root      TEXT NOT NULL,             -- key of the root that it draws from; '-' if it may not
  traits    BLOB NOT NULL,             -- what quotas select it by
  read      INTEGER NOT NULL,          -- up to which number its labels are recorded; -1 for a digest
  opened    INTEGER NOT NULL,
  closed    INTEGER,
  cause     TEXT,                      -- why it was closed
  fork      INTEGER                    -- where a closed row is filed; see `interval_index.py`
) STRICT;

CREATE INDEX charges_open ON charges (namespace, key, base, uid, opened) WHERE closed IS NULL;
CREATE INDEX charges_unread ON charges (read, namespace) WHERE closed IS NULL;
CREATE INDEX charges_closed ON charges (fork, namespace, closed, opened)
  WHERE closed IS NOT NULL;

-- What the pods that name a root are charged together, and what part of it is committed. While the
-- root is `live`, has an entry of its own, both together are charged the larger of its charge and
-- this; otherwise the pods are charged one by one.
CREATE TABLE draws (
  number    INTEGER PRIMARY KEY,       -- in the order of opening
  namespace INTEGER NOT NULL,
  root      TEXT NOT NULL,             -- key
  charge    BLOB NOT NULL,
  committed BLOB NOT NULL,
  pods      INTEGER NOT NULL,
  live      INTEGER NOT NULL,
  opened    INTEGER NOT NULL,
  closed    INTEGER,
  fork      INTEGER                    -- where a closed row is filed; see `interval_index.py`
) STRICT;

CREATE INDEX draws_open ON draws (namespace, root) WHERE closed IS NULL;
CREATE INDEX draws_closed ON draws (fork, namespace, closed, opened) WHERE closed IS NOT NULL;

-- The cards of nodes, whose accounts have the same names. `state` is `announced`; `lost` when the
-- node no longer announces a card that pods still hold, `gone` when the node does not exist any more.
-- `body` is the card as JSON.
CREATE TABLE cards (
  account INTEGER NOT NULL,
  cluster TEXT NOT NULL,
  node    TEXT NOT NULL,
  keeper  TEXT NOT NULL,               -- who hands the card out
  state   TEXT NOT NULL,
  body    TEXT NOT NULL,
  opened  INTEGER NOT NULL,
  closed  INTEGER,
  PRIMARY KEY (account, opened)
) STRICT, WITHOUT ROWID;

-- Where the cards of pods are. `node` is `<cluster>/<node>`, empty when only what `stands` is left:
-- the amounts that the cards decided. `parts` are the containers with their shares of cards.
CREATE TABLE placements (
  number      INTEGER PRIMARY KEY,     -- in the order of opening
  namespace   INTEGER NOT NULL,
  key         TEXT NOT NULL,
  uid         TEXT NOT NULL,
  node        TEXT NOT NULL,
  parts       BLOB NOT NULL,
  stands      BLOB NOT NULL,
  since       INTEGER NOT NULL,        -- time at which the pod was placed
  stage       INTEGER NOT NULL,        -- 0 proposed, 1 bound, 2 handed out
  initialised INTEGER NOT NULL,        -- whether init containers are over and book nothing
  observed    INTEGER NOT NULL,        -- whether another scheduler placed the pod
  opened      INTEGER NOT NULL,
  closed      INTEGER,
  fork        INTEGER                  -- where a closed row is filed; see `interval_index.py`
) STRICT;

CREATE INDEX placements_open ON placements (node, namespace, key) WHERE closed IS NULL;
CREATE INDEX placements_closed ON placements (fork, node, closed, opened)
  WHERE closed IS NOT NULL;

-- Corrections: facts that the ledger did not receive in time; see `drift_table.py`. `number` counts from
-- 0 in the record. `over` is a list of `[line, used, limit]` that it brought over their limits.
CREATE TABLE drift (
  position  INTEGER NOT NULL,
  number    INTEGER NOT NULL,
  namespace INTEGER NOT NULL,
  key       TEXT NOT NULL,
  uid       TEXT NOT NULL,
  type      TEXT NOT NULL,
  cause     TEXT NOT NULL,
  amounts   BLOB NOT NULL,
  over      BLOB NOT NULL,
  PRIMARY KEY (position, number)
) STRICT, WITHOUT ROWID;

-- Refused requests. They come from another stream, where old ones expire, and are not a part
-- of the digest.
CREATE TABLE denials (
  position  INTEGER PRIMARY KEY,       -- in the stream of denials
  time      INTEGER NOT NULL,
  cluster   TEXT NOT NULL,
  namespace TEXT NOT NULL,
  body      BLOB NOT NULL
) STRICT;

CREATE INDEX denials_by_namespace ON denials (namespace, position);
