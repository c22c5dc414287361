// Generated from the handlers by UPDATE=1 go test ./internal/console. Do not edit.

export interface About {
  version: string;
  cluster: string;
  file: boolean;
  doctor: boolean;
  decisions: boolean;
  recorded: boolean;
}

export interface AssessComparison {
  now: AssessSize;
  before: AssessProspect;
  after: AssessProspect;
  drift: AssessEditDrift[] | null;
  fixed: number;
  budget: number | null;
  budgetError: string;
  next: AssessNextPass | null;
  notes: string[] | null;
}

export interface AssessEditDrift {
  reason: string;
  fields: AssessEditedField[] | null;
  nodes: number;
  names: string[] | null;
}

export interface AssessEditedField {
  field: string;
  old: string;
  new: string;
}

export interface AssessKept {
  reason: string;
  nodes: number;
  hourlyCost: number;
  monthlyCost: number;
  example: string;
}

export interface AssessKeptNode {
  node: string;
  why: string;
  new: boolean;
}

export interface AssessNextPass {
  before: AssessStep[] | null;
  after: AssessStep[] | null;
}

export interface AssessNode {
  name: string;
  nodePool: string;
  instanceType: string;
  zone: string;
  capacityType: string;
  hourlyCost: number;
  pods: number;
}

export interface AssessPassGate {
  name: string;
  on: boolean;
  text: string;
}

export interface AssessProspect {
  nodes: number;
  hourlyCost: number;
  newNodesHourlyCost: number;
  lowerBound: number;
  moves: AssessStep[] | null;
  steps: number;
  launched: number;
  removed: number;
  evictions: number;
  kept: AssessKeptNode[] | null;
  stuck: AssessStuckPods[] | null;
  cut: boolean;
}

export interface AssessSize {
  nodes: number;
  hourlyCost: number;
}

export interface AssessStep {
  reason: string;
  removed: string[] | null;
  launched: AssessNode[] | null;
  evictions: number;
  hourlyCost: number;
  how: string;
}

export interface AssessStuckPods {
  namespace: string;
  workload: string;
  pods: number;
  why: string;
  more: number;
}

export interface AssessSwitch {
  kind: string;
  name: string;
  text: string;
  hourlySavings: number;
  monthlySavings: number;
}

export interface AssessTitledOutcome {
  title: string;
  name: string;
  hourlyCost: number;
  monthlyCost: number;
  hourlySavings: number;
  monthlySavings: number;
  nodes: number;
  moves: number;
  evictions: number;
  cut: boolean;
}

export interface Assessment {
  at: string | null;
  computing: boolean;
  notComputed: string;
  sentences: string[] | null;
  switch: string;
  outcomes: AssessTitledOutcome[] | null;
  switches: AssessSwitch[] | null;
  kept: AssessKept[] | null;
  prices: string;
}

export interface BudgetsSchedule {
  reasons: string[] | null;
  now: BudgetsSpan;
  spans: BudgetsSpan[] | null;
  text: string;
}

export interface BudgetsSpan {
  from: string;
  to: string;
  allowed: number;
  budget: number;
}

export interface Change {
  sequence: number;
  at: string;
  link: Link;
  summary: Summary;
  changed: Node[] | null;
  removed: string[] | null;
}

export interface ClaimCondition {
  type: string;
  status: string;
  reason: string;
  message: string;
  since: string;
}

export interface Cluster {
  name: string;
  link: Link;
  read: boolean;
  at: string;
  nodes: number;
  pods: number;
  pending: number;
  stuck: number;
  cost: TopSpend;
  changes: number | null;
  errors: number | null;
  warnings: number | null;
}

export interface Clusters {
  clusters: Cluster[] | null;
}

export interface CostRow {
  rowKind: string;
  name: string;
  pods: number;
  cpuMillicores: number;
  memoryBytes: number;
  hourlyCost: number;
}

export interface Costs {
  at: string;
  by: string;
  label: string;
  labels: LabelKey[] | null;
  unknown: boolean;
  hourlyCost: number;
  unpriced: number;
  rows: CostRow[] | null;
}

export interface Decisions {
  from: string | null;
  to: string | null;
  decisions: RecorderDecision[] | null;
  more: number;
  recorded: number;
  realized: RecorderSaved;
}

export interface Diagnosis {
  at: string;
  checks: number;
  findings: DoctorFinding[] | null;
  notChecked: DoctorNotChecked[] | null;
}

export interface DoctorFinding {
  check: string;
  area: string;
  severity: string;
  object: string;
  seen: string;
  why: string;
  remedy: string;
  command?: string;
  manifest?: string;
}

export interface DoctorNotChecked {
  check: string;
  why: string;
  cause: string;
}

export interface DriftedDrift {
  reason: string;
  fields: DriftedField[] | null;
  since?: string | null;
}

export interface DriftedField {
  object: string;
  field: string;
  old: string;
  new: string;
}

export interface Fleet {
  sequence: number;
  at: string;
  link: Link;
  summary: Summary;
  nodes: Node[] | null;
}

export interface Found {
  pods: FoundPod[] | null;
  more: number;
  checks: FoundCheck[] | null;
}

export interface FoundCheck {
  id: string;
  title: string;
  findings: number | null;
}

export interface FoundPod {
  namespace: string;
  name: string;
  node: string;
}

export interface Image {
  id: string;
  name: string;
  deprecated: boolean;
  for: string;
}

export interface LabelKey {
  key: string;
  pods: number;
  values: number;
}

export interface Link {
  cluster: string;
  file: boolean;
  loading: string;
  lost: string | null;
  lostWhy: string;
  missing: string[] | null;
  forbidden: string[] | null;
  rule: string;
  notPlanned: string;
}

export interface ManifestDeployment {
  namespace: string;
  name: string;
  pods: number;
}

export interface ManifestFault {
  line: number;
  field: string;
  message: string;
}

export interface Node {
  id: string;
  name: string;
  nodeClaim: string;
  nodePool: string;
  instanceType: string;
  capacityType: string;
  zone: string;
  state: string;
  why: string;
  hourlyCost: number | null;
  created: string;
  cpuMillicores: TopUse;
  memoryBytes: TopUse;
  pods: number;
  maxPods: number;
  podsHash: string;
}

export interface NodeClaimReport {
  name: string;
  node: string;
  nodePool: string;
  nodeClass: string;
  instance: string;
  instanceType: string;
  capacityType: string;
  zone: string;
  hourlyCost: number | null;
  created: string;
  deleted: string | null;
  image: Resource;
  subnets: Resource[] | null;
  securityGroups: Resource[] | null;
  conditions: ClaimCondition[] | null;
  drift: DriftedDrift | null;
  events: ObjectEvent[] | null;
  noEvents: string;
  eventsRule: string;
  manifest: string;
}

export interface NodeClassFault {
  type: string;
  status: string;
  message: string;
}

export interface NodeClassReport {
  name: string;
  nodePools: string[] | null;
  faults: NodeClassFault[] | null;
  resolved: boolean;
  images: Image[] | null;
  subnets: Resource[] | null;
  securityGroups: Resource[] | null;
  reservations: Resource[] | null;
  instanceProfile: string;
  manifest: string;
}

export interface NodePods {
  nodes: Record<string, Pod[] | null>;
}

export interface NodePoolManifest {
  name: string;
  manifest: string;
}

export interface NodePools {
  names: string[] | null;
  classes: Record<string, string>;
}

export interface NodereportBlocker {
  code: string;
  object: string;
  field: string;
  message: string;
  change: string;
  until?: string | null;
}

export interface NodereportDrain {
  longestSeconds: number;
  endless: string[] | null;
}

export interface NodereportExcluded {
  instanceType: string;
  hourlyCost: number;
  rule: string;
}

export interface NodereportExpiration {
  due?: string | null;
  deadline?: string | null;
  budgetReason?: string;
  problem?: string;
}

export interface NodereportLaunch {
  reason: string;
  pods: string[] | null;
  gone: number;
  replaces: string[] | null;
  requests: string;
  types: number;
  alternatives: NodereportNewNode[] | null;
  split: number;
  excluded: NodereportExcluded[] | null;
  rules: NodereportRule[] | null;
}

export interface NodereportMove {
  pod: string;
  node: string;
  new: boolean;
  why: string;
}

export interface NodereportNewNode {
  instanceType: string;
  zone: string;
  capacityType: string;
  nodePool: string;
  hourlyCost: number;
}

export interface NodereportPod {
  name: string;
  note: string;
}

export interface NodereportRemoval {
  blocks: string;
  accepted: boolean;
  why: string;
  hourlySavings: number;
  launches: NodereportNewNode[] | null;
  pods: NodereportMove[] | null;
}

export interface NodereportReport {
  objectKind: string;
  name: string;
  verdict: NodereportVerdict;
  node: string;
  nodeClaim: string;
  nodePool: string;
  instanceType: string;
  zone: string;
  capacityType: string;
  hourlyCost: number;
  createdAt: string;
  expiresAt?: string | null;
  expiration?: NodereportExpiration | null;
  use: NodereportUse[] | null;
  stages: NodereportStage[] | null;
  launch?: NodereportLaunch | null;
  blockers: NodereportBlocker[] | null;
  drift?: DriftedDrift | null;
  removal?: NodereportRemoval | null;
  drain?: NodereportDrain | null;
  pods: NodereportPod[] | null;
  computing?: boolean;
  prices: string;
  now: string;
  pricesProblem?: string;
}

export interface NodereportRule {
  rule: string;
  types: number;
}

export interface NodereportStage {
  name: string;
  done: boolean;
  at?: string | null;
  message: string;
}

export interface NodereportUse {
  resource: string;
  requested: string;
  allocatable: string;
  share: number;
}

export interface NodereportVerdict {
  state: string;
  reason: string;
  text: string;
}

export interface ObjectEvent {
  at: string;
  objectKind: string;
  warning: boolean;
  reason: string;
  message: string;
  count: number;
}

export interface Past {
  asked: string;
  seen: string;
  pass: string;
  fleet: Fleet;
  pending: Pending;
}

export interface Pending {
  at: string;
  unknown: boolean;
  planned: string | null;
  stuck: number;
  fits: number;
  waiting: number;
  workloads: number;
  found: number;
  from: number;
  groups: PendingGroup[] | null;
}

export interface PendingGroup {
  namespace: string;
  kind: string;
  name: string;
  pods: string[] | null;
  count: number;
  since: string;
  cpuMillicores: number;
  memoryBytes: number;
  why: string;
  fits: boolean;
  waiting: boolean;
}

export interface Pod {
  namespace: string;
  name: string;
  workload: string;
  cpuMillicores: number;
  memoryBytes: number;
  daemon: boolean;
}

export interface PodreportChange {
  summary: string;
  edits: PodreportEdit[] | null;
  node: PodreportPlace | null;
}

export interface PodreportEdit {
  kind: string;
  namespace?: string;
  name: string;
  action: string;
  fields: PodreportFieldChange[] | null;
  patch: unknown[] | null;
  manifest?: string;
  command?: string;
}

export interface PodreportEffort {
  candidates: number;
  plans: number;
  complete: boolean;
}

export interface PodreportFieldChange {
  field: string;
  old: string;
  new: string;
}

export interface PodreportPlace {
  name?: string;
  nodeClaim?: string;
  nodePool?: string;
  instanceType?: string;
  zone?: string;
  capacityType?: string;
  hourlyCost?: number;
  new: boolean;
  otherPods?: number;
}

export interface PodreportPoolReason {
  nodePool: string;
  code: string;
  message: string;
  rule?: RejectionRule | null;
  more?: number;
}

export interface PodreportReport {
  pod: string;
  state: string;
  cause: string;
  node?: PodreportPlace | null;
  why: string[] | null;
  constraints: string[] | null;
  blocks: string[] | null;
  nodePools: PodreportPoolReason[] | null;
  change?: PodreportChange | null;
  alternatives: PodreportChange[] | null;
  search?: PodreportEffort | null;
  prices: string;
  pricesProblem?: string;
  notes: string[] | null;
}

export interface PoolreportCondition {
  type: string;
  status: string;
  reason: string;
  message: string;
  bad: boolean;
}

export interface PoolreportDisrupted {
  node: string;
  state: string;
  why: string;
  command: string;
}

export interface PoolreportDrift {
  reason: string;
  fields: DriftedField[] | null;
  nodes: number;
  names: string[] | null;
}

export interface PoolreportExcluded {
  requirement: string;
  types: number;
}

export interface PoolreportGoing {
  node: string;
  reason: string;
  hourlySavings: number;
  together: number;
}

export interface PoolreportLimit {
  resource: string;
  used: string;
  limit: string;
  share: number;
}

export interface PoolreportReport {
  name: string;
  verdict: string;
  nodes: number;
  starting: number;
  replicas?: number | null;
  weight: number;
  hourlyCost: number;
  conditions: PoolreportCondition[] | null;
  limits: PoolreportLimit[] | null;
  budgetError: string;
  budgets: BudgetsSchedule[] | null;
  disrupted: PoolreportDisrupted[] | null;
  going: PoolreportGoing[] | null;
  stays: PoolreportStays[] | null;
  stopped: boolean;
  computing?: boolean;
  drift: PoolreportDrift[] | null;
  types: number;
  admitted: number;
  excluded: PoolreportExcluded[] | null;
  prices: string;
  pricesProblem?: string;
  now: string;
}

export interface PoolreportStays {
  code: string;
  message: string;
  nodes: number;
  names: string[] | null;
}

export interface Problem {
  status: number;
  code: string;
  field: string;
  message: string;
  rule: string;
}

export interface Recorded {
  recorded: number;
}

export interface RecorderAlternative {
  what: string;
  hourlyCost?: number;
  hourlySavings?: number;
  evictions?: number;
  chosen?: boolean;
  whyNot?: string;
}

export interface RecorderBudgetRecord {
  nodePool: string;
  nodes: number;
  allowed: number;
  disrupting: number;
  error?: string;
}

export interface RecorderDecision {
  id: string;
  pass: string;
  at: string;
  type: string;
  nodePool?: string;
  what: string;
  why: string;
  hourlyCost?: number;
  hourlySavings?: number;
  evictions?: number;
  removes?: RecorderNodeRecord[] | null;
  launches?: RecorderLaunchRecord[] | null;
  moves?: RecorderPlacementRecord[] | null;
  rule: RecorderRule;
  alternatives?: RecorderAlternative[] | null;
  moreAlternatives?: number;
  prices?: RecorderPriceSource[] | null;
  priceTable?: RecorderPriceRow[] | null;
  inputs?: RecorderInputs;
  outcome?: string;
  ended?: string;
  steps?: RecorderStep[] | null;
  realized?: RecorderRealized | null;
}

export interface RecorderInputs {
  version?: string;
  nodes: number;
  pods: number;
  pending: number;
  poolGeneration?: number;
}

export interface RecorderInstance {
  nodePool: string;
  instanceType: string;
  zone: string;
  capacityType: string;
  hourlyCost?: number;
}

export interface RecorderLaunchRecord {
  nodePool: string;
  instanceTypes: string[] | null;
  zone: string;
  capacityType: string;
  hourlyCost: number;
  requirements: V1Requirement[] | null;
  requests: Record<string, string>;
  pods: string[] | null;
  drivers?: string[] | null;
  minValuesRelaxed?: boolean;
}

export interface RecorderNodeRecord {
  name: string;
  nodeClaim: string;
  nodePool: string;
  instanceType?: string;
  zone?: string;
  capacityType?: string;
  hourlyCost: number;
  pods?: string[] | null;
}

export interface RecorderPlacementRecord {
  node: string;
  pods: string[] | null;
}

export interface RecorderPoolSaved {
  nodePool: string;
  hourlySavings: number;
  totalSavings: number;
}

export interface RecorderPriceRecord {
  capacityType: string;
  zone: string;
  price?: number;
  unavailable?: string;
}

export interface RecorderPriceRow {
  instanceType: string;
  cpu: string;
  memory: string;
  offerings: RecorderPriceRecord[] | null;
}

export interface RecorderPriceSource {
  capacityType: string;
  read?: string;
}

export interface RecorderRealized {
  launched?: RecorderInstance[] | null;
  hourlyCost: number | null;
  abovePlanHourlyCost: number | null;
  hourlySavings: number | null;
  totalSavings?: number | null;
}

export interface RecorderRule {
  text?: string;
  consolidationPolicy?: string;
  consolidateAfter?: string;
  budgets?: RecorderBudgetRecord[] | null;
  scores?: RecorderScore[] | null;
  threshold?: number;
  preferences?: string;
}

export interface RecorderSaved {
  until: string;
  hourlySavings: number;
  totalSavings: number;
  nodePools: RecorderPoolSaved[] | null;
}

export interface RecorderScore {
  nodePool: string;
  approved: boolean;
  score: number;
  hourlySavings: number;
  poolHourlyCost: number;
  disturbed: number;
  poolDisruption: number;
}

export interface RecorderStep {
  decision: string;
  at: string;
  what: string;
  object?: string;
  message?: string;
  instance?: RecorderInstance;
}

export interface RejectionAmount {
  resource: string;
  needs: string;
}

export interface RejectionBound {
  of: string;
  count?: number;
  most?: number;
}

export interface RejectionConstraint {
  kind: string;
  key: string;
  hosts?: boolean;
  selector?: string;
  claim?: string;
  selectors?: number;
  maxSkew?: number;
  minDomains?: number;
  usable?: number;
  pods?: RejectionDomainCounts;
  allowed?: RejectionNames;
  undecided?: number;
  example?: RejectionExample | null;
  daemonSets?: string[] | null;
  elsewhere?: boolean;
}

export interface RejectionContradiction {
  key: string;
  pod?: RejectionLabel[] | null;
  volumes?: RejectionLabel[] | null;
}

export interface RejectionDomainCount {
  domain: string;
  pods: number;
}

export interface RejectionDomainCounts {
  first: RejectionDomainCount[] | null;
  more?: number;
}

export interface RejectionDomains {
  nodePool?: RejectionLabel | null;
  constraints: RejectionConstraint[] | null;
  possible?: RejectionNames;
}

export interface RejectionExample {
  pod: string;
  node: string;
  terminating?: boolean;
}

export interface RejectionGroupOfPods {
  name: string;
  cause: string;
  held?: string;
  minCount?: number;
  pods?: number;
  placed?: number;
  scheduled?: number;
  key?: string;
  domain?: string;
  domains?: number;
  tried?: number;
  before?: string;
  pod?: string;
  why?: RejectionPodReason | null;
}

export interface RejectionLabel {
  key: string;
  operator: string;
  values?: string[] | null;
  atLeast?: number | null;
  atMost?: number | null;
  minValues?: number;
}

export interface RejectionLabels {
  cause: string;
  by?: string;
  claim?: string;
  required?: RejectionLabel[] | null;
  with?: RejectionLabel[] | null;
  combined?: boolean;
  allowed?: RejectionLabel | null;
  similar?: string;
  known?: string[] | null;
}

export interface RejectionLimit {
  resource: string;
  limit: string;
  used: string;
  planned?: string;
  left: string;
  instanceType: string;
  adds: string;
}

export interface RejectionMinValue {
  key: string;
  values: number;
  wanted: number;
}

export interface RejectionMissing {
  feature?: string;
  driver?: string;
  daemonSet?: string;
  why?: string;
}

export interface RejectionNames {
  first: string[] | null;
  more?: number;
}

export interface RejectionNode {
  nodeClaim: string;
  name: string;
}

export interface RejectionOfferings {
  types: number;
  only?: string;
  unpriced?: boolean;
  capacityTypes?: string[] | null;
  zones?: string[] | null;
}

export interface RejectionPodReason {
  code: string;
  nodePool?: string;
  rule?: RejectionRule | null;
}

export interface RejectionResourceClaims {
  cause: string;
  names?: string[] | null;
  error?: string;
}

export interface RejectionRule {
  labels?: RejectionLabels | null;
  contradiction?: RejectionContradiction | null;
  taints?: RejectionUntoleratedTaint[] | null;
  sizes?: RejectionSizes | null;
  limits?: RejectionLimit[] | null;
  minValues?: RejectionMinValue[] | null;
  offerings?: RejectionOfferings | null;
  domains?: RejectionDomains | null;
  ports?: string[] | null;
  volumeClaim?: RejectionVolumeClaim | null;
  resourceClaims?: RejectionResourceClaims | null;
  missing?: RejectionMissing | null;
  podGroup?: RejectionGroupOfPods | null;
  bound?: RejectionBound | null;
  node?: RejectionNode | null;
  stated?: string;
}

export interface RejectionSize {
  resource: string;
  needs: string;
  cause: string;
  instanceType?: string;
  has?: string;
  daemons?: string;
  similar?: string;
}

export interface RejectionSizes {
  nodePool?: RejectionLabel | null;
  pod?: RejectionLabel | null;
  tooLarge?: RejectionSize[] | null;
  together?: RejectionAmount[] | null;
  otherUnknown?: number;
}

export interface RejectionUntoleratedTaint {
  key: string;
  value?: string;
  effect: string;
}

export interface RejectionVolumeClaim {
  name: string;
  cause: string;
  volume?: string;
  storageClass?: string;
  provisioner?: string;
  label?: string;
  annotation?: string;
  node?: string;
  pod?: string;
  error?: string;
}

export interface Resource {
  id: string;
  note: string;
}

export interface Spend {
  recorded: boolean;
  since: string | null;
  points: SpendPoint[] | null;
  read: number;
}

export interface SpendPoint {
  at: string;
  reservedHourlyCost: number;
  onDemandHourlyCost: number;
  spotHourlyCost: number;
  lowerBound: number | null;
  nodes: number;
  pending: number | null;
  unpriced: number;
}

export interface Summary {
  pods: number;
  pending: number;
  stuck: number;
  waiting: number;
  cost: TopSpend;
  planned: string | null;
  changes: TopChange[] | null;
  notes: string[] | null;
  kept: TopKept[] | null;
}

export interface TopChange {
  action: string;
  reason: string;
  nodes: string[] | null;
  launches: TopLaunch[] | null;
  pods: number;
  progress?: string;
  hourlySavings: number;
}

export interface TopKept {
  why: string;
  nodes: number;
}

export interface TopLaunch {
  nodePool: string;
  instanceType: string;
  capacityType: string;
  zone: string;
  hourlyCost: number;
}

export interface TopSpend {
  hourlyCost: number;
  plannedHourlyCost: number | null;
  lowerBound: number | null;
  unpriced: number;
  prices: string;
  pricesProblem?: string;
}

export interface TopUse {
  allocatable: number;
  requested: number | null;
  used: number | null;
}

export interface V1Requirement {
  key: string;
  operator: string;
  values?: string[] | null;
  minValues?: number | null;
}

export interface WhatIf {
  at: string;
  faults: ManifestFault[] | null;
  comparison: AssessComparison | null;
  prices: string;
  patch: string;
}

export interface WhatIfChoices {
  deployments: ManifestDeployment[] | null;
  gates: AssessPassGate[] | null;
}

export interface WhatIfRequest {
  nodePool?: string;
  nodeClass?: string;
  manifest?: string;
  deployment?: string;
  replicas?: number | null;
  gates?: Record<string, boolean>;
}
