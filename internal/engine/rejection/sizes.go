package rejection

// Sizes is which requests are too large for the nodes of a pool, or for all nodes.
type Sizes struct {
	// Pool or Pod is the requirement of that side without which there are larger types; both nil if none is to blame.
	Pool *Label `json:"nodePool,omitempty"`
	Pod  *Label `json:"pod,omitempty"`
	// TooLarge are the requests that no suitable type has room for. Without any, no single type has room for all of Together.
	TooLarge []Size   `json:"tooLarge,omitempty"`
	Together []Amount `json:"together,omitempty"`
	// OtherUnknown counts how many more requested resources neither a node nor an instance type has.
	OtherUnknown int `json:"otherUnknown,omitempty"`
}

// Size is a request that is too large. Amounts are quantities in the notation of Kubernetes.
type Size struct {
	Amount
	Cause SizeCause `json:"cause"`
	// InstanceType is the largest suitable type, which has room for Has after Daemons for its DaemonSets; empty if none has the resource.
	InstanceType string `json:"instanceType,omitempty"`
	Has          string `json:"has,omitempty"`
	Daemons      string `json:"daemons,omitempty"`
	// Similar is the resource that was probably meant; empty if none is similar.
	Similar string `json:"similar,omitempty"`
}

// Amount is a request.
type Amount struct {
	Resource string `json:"resource"`
	Needs    string `json:"needs"`
}

// SizeCause states why there is no room.
type SizeCause string

// The causes.
const (
	// NowhereKnown: neither a node nor an instance type has the resource. NoType: no instance type has it. NoSuitableType: none has that
	// suits the pod.
	NowhereKnown   SizeCause = "Nowhere"
	NoType         SizeCause = "NoInstanceType"
	NoSuitableType SizeCause = "NoSuitableInstanceType"
	// AllTooSmall: no instance type is that large. SuitableTooSmall: none is that suits the pod.
	AllTooSmall      SizeCause = "AllTooSmall"
	SuitableTooSmall SizeCause = "SuitableTooSmall"
)
