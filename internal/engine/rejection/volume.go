package rejection

// VolumeClaim states why a pod cannot use a volume claim.
type VolumeClaim struct {
	// Name is that of the claim.
	Name  string      `json:"name"`
	Cause VolumeCause `json:"cause"`
	// Volume and Class are the names of the claim's volume and of its storage class, as far as the cause is about them.
	Volume string `json:"volume,omitempty"`
	Class  string `json:"storageClass,omitempty"`
	// Provisioner is the class's, Label a topology key of the class that nodes do not have.
	Provisioner string `json:"provisioner,omitempty"`
	Label       string `json:"label,omitempty"`
	// Annotation is the claim's annotation that has to go.
	Annotation string `json:"annotation,omitempty"`
	// Node is the name of the node that the volume needs, and that does not exist. Pod is the user of a claim that only one pod can use.
	Node string `json:"node,omitempty"`
	Pod  string `json:"pod,omitempty"`
	// Error states why the topology of the volume fits no node, or what is wrong with what its driver publishes.
	Error string `json:"error,omitempty"`
}

// VolumeCause states why a volume claim cannot be used.
type VolumeCause string

// The causes.
const (
	ClaimMissing    VolumeCause = "ClaimMissing"
	ClaimDeleting   VolumeCause = "ClaimDeleting"
	ClaimLost       VolumeCause = "ClaimLost"
	ClaimOfAnother  VolumeCause = "ClaimOfAnotherPod" // it has the name of an ephemeral volume's claim
	ClaimInUse      VolumeCause = "ClaimInUse"
	VolumeMissing   VolumeCause = "VolumeMissing"
	NotBoundYet     VolumeCause = "NotBoundYet"
	HostGone        VolumeCause = "HostGone"
	NoClass         VolumeCause = "NoStorageClass"
	ClassMissing    VolumeCause = "StorageClassMissing"
	BindsAtOnce     VolumeCause = "BindsImmediately"
	NodeGone        VolumeCause = "SelectedNodeGone"
	NoneFree        VolumeCause = "NoFreeVolume"
	NoStorage       VolumeCause = "NoStorageCapacity"
	FitsNoNode      VolumeCause = "FitsNoNode"
	ForeignDriver   VolumeCause = "UnsupportedProvisioner"
	ForeignTopology VolumeCause = "UnsupportedTopology"
)
