package rejection

// Domains is the topology constraints that leave a pod no domain in a pool.
type Domains struct {
	// Pool is the requirement of the pool without which there are domains; nil if it is not to blame.
	Pool *Label `json:"nodePool,omitempty"`
	// Constraints are the constraints without any one of which there is a domain.
	Constraints []Constraint `json:"constraints"`
	// Possible are the domains in which a node of the pool for the pod can be; empty where they do not matter.
	Possible Names `json:"possible,omitzero"`
}

// Constraint is a topology constraint, and where the pods that it counts are.
type Constraint struct {
	Kind ConstraintKind `json:"kind"`
	// Key is the label with values that are the domains. Hosts is true if each node is one.
	Key   string `json:"key"`
	Hosts bool   `json:"hosts,omitempty"`
	// Selector is the label selector of the pods that count, empty for all. In place of it, Claim is the volume claim with users that count,
	// or Selectors how many selectors are joined.
	Selector  string `json:"selector,omitempty"`
	Claim     string `json:"claim,omitempty"`
	Selectors int    `json:"selectors,omitempty"`
	// MaxSkew and MinDomains are those of a spread. Usable is how many domains the pod can use.
	MaxSkew    int `json:"maxSkew,omitempty"`
	MinDomains int `json:"minDomains,omitempty"`
	Usable     int `json:"usable,omitempty"`
	// Pods are the domains with the pods that count, for a spread those without pods, too.
	Pods DomainCounts `json:"pods,omitzero"`
	// Allowed are the domains that a spread leaves.
	Allowed Names `json:"allowed,omitzero"`
	// Undecided counts how many pods are on planned nodes that may come up anywhere.
	Undecided int `json:"undecided,omitempty"`
	// Example is one of the running pods that count.
	Example *Example `json:"example,omitempty"`
	// DaemonSets run such pods on each new node that would suit, or, for affinity over hosts, on none of them if Elsewhere is true.
	DaemonSets []string `json:"daemonSets,omitempty"`
	Elsewhere  bool     `json:"elsewhere,omitempty"`
}

// ConstraintKind is the sort of a topology constraint.
type ConstraintKind string

// The kinds.
const (
	KindSpread   ConstraintKind = "TopologySpread"
	KindAffinity ConstraintKind = "PodAffinity"
	KindApart    ConstraintKind = "PodAntiAffinity"
	KindInverse  ConstraintKind = "PodAntiAffinityOfOthers"
)

// Example is a running pod, NAMESPACE/NAME, and its node.
type Example struct {
	Pod         string `json:"pod"`
	Node        string `json:"node"`
	Terminating bool   `json:"terminating,omitempty"`
}

// MaxNames limits how many names a list has at most. A cluster has thousands of hosts.
const MaxNames = 32

// Names are the first names of a list, and how many more there are.
type Names struct {
	First []string `json:"first"`
	More  int      `json:"more,omitempty"`
}

// NamesOf are the names of a list.
func NamesOf(list []string) Names {
	n := min(len(list), MaxNames)
	return Names{First: append([]string(nil), list[:n]...), More: len(list) - n}
}

// DomainCounts are the first domains of a list, and how many more there are.
type DomainCounts struct {
	First []DomainCount `json:"first"`
	More  int           `json:"more,omitempty"`
}

// DomainCount counts how many pods count in a domain.
type DomainCount struct {
	Domain string `json:"domain"`
	Pods   int    `json:"pods"`
}
