package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/dovetail-k8s/dovetail/api/condition"
)

// EC2NodeClass defines how nodes are launched on EC2: image, network, role, disks.
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=ec2nodeclasses,singular=ec2nodeclass,scope=Cluster,categories=karpenter,shortName={ec2nc,ec2ncs}
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type="string",JSONPath=".status.conditions[?(@.type==\"Ready\")].status",description=""
// +kubebuilder:printcolumn:name="Age",type="date",JSONPath=".metadata.creationTimestamp",description=""
// +kubebuilder:printcolumn:name="Role",type="string",JSONPath=".spec.role",priority=1,description=""
type EC2NodeClass struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	Spec EC2NodeClassSpec `json:"spec,omitempty"`
	// +optional
	Status EC2NodeClassStatus `json:"status,omitempty"`
}

// EC2NodeClassList is a list of EC2NodeClasses.
// +kubebuilder:object:root=true
type EC2NodeClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []EC2NodeClass `json:"items"`
}

// EC2NodeClassSpec is the desired state of an EC2NodeClass. Selector terms are alternatives; all fields of one
// term must match. The tag value "*" stands for any value.
// +kubebuilder:validation:XValidation:message="exactly one of 'role' and 'instanceProfile' must be given",rule="(has(self.role) && !has(self.instanceProfile)) || (!has(self.role) && has(self.instanceProfile))"
// +kubebuilder:validation:XValidation:message="amiFamily must be 'AL2' or 'Custom' with an 'al2' alias",rule="!has(self.amiFamily) || (self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == 'al2') ? (self.amiFamily == 'Custom' || self.amiFamily == 'AL2') : true)"
// +kubebuilder:validation:XValidation:message="amiFamily must be 'AL2023' or 'Custom' with an 'al2023' alias",rule="!has(self.amiFamily) || (self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == 'al2023') ? (self.amiFamily == 'Custom' || self.amiFamily == 'AL2023') : true)"
// +kubebuilder:validation:XValidation:message="amiFamily must be 'Bottlerocket' or 'Custom' with a 'bottlerocket' alias",rule="!has(self.amiFamily) || (self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == 'bottlerocket') ? (self.amiFamily == 'Custom' || self.amiFamily == 'Bottlerocket') : true)"
// +kubebuilder:validation:XValidation:message="amiFamily must be 'Windows2019' or 'Custom' with a 'windows2019' alias",rule="!has(self.amiFamily) || (self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == 'windows2019') ? (self.amiFamily == 'Custom' || self.amiFamily == 'Windows2019') : true)"
// +kubebuilder:validation:XValidation:message="amiFamily must be 'Windows2022' or 'Custom' with a 'windows2022' alias",rule="!has(self.amiFamily) || (self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == 'windows2022') ? (self.amiFamily == 'Custom' || self.amiFamily == 'Windows2022') : true)"
// +kubebuilder:validation:XValidation:message="amiFamily must be 'Windows2025' or 'Custom' with a 'windows2025' alias",rule="!has(self.amiFamily) || (self.amiSelectorTerms.exists(x, has(x.alias) && x.alias.find('^[^@]+') == 'windows2025') ? (self.amiFamily == 'Custom' || self.amiFamily == 'Windows2025') : true)"
// +kubebuilder:validation:XValidation:message="amiFamily is required unless amiSelectorTerms has an alias",rule="self.amiSelectorTerms.exists(x, has(x.alias)) ? true : has(self.amiFamily)"
type EC2NodeClassSpec struct {
	// SubnetSelectorTerms find the subnets that nodes may be in. In each zone the one with most free
	// addresses is used.
	// +kubebuilder:validation:XValidation:message="subnetSelectorTerms cannot be empty",rule="self.size() != 0"
	// +kubebuilder:validation:XValidation:message="a term of subnetSelectorTerms needs one of 'tags' and 'id'",rule="self.all(x, has(x.tags) || has(x.id))"
	// +kubebuilder:validation:XValidation:message="'id' and 'tags' exclude one another in a term of subnetSelectorTerms",rule="!self.all(x, has(x.id) && has(x.tags))"
	// +kubebuilder:validation:MaxItems=30
	// +required
	SubnetSelectorTerms []SubnetSelectorTerm `json:"subnetSelectorTerms" hash:"ignore"`
	// SecurityGroupSelectorTerms find the security groups that nodes have. All that match are attached.
	// +kubebuilder:validation:XValidation:message="securityGroupSelectorTerms cannot be empty",rule="self.size() != 0"
	// +kubebuilder:validation:XValidation:message="a term of securityGroupSelectorTerms needs one of 'tags', 'id' and 'name'",rule="self.all(x, has(x.tags) || has(x.id) || has(x.name))"
	// +kubebuilder:validation:XValidation:message="'id' excludes 'tags' and 'name' in a term of securityGroupSelectorTerms",rule="!self.all(x, has(x.id) && (has(x.tags) || has(x.name)))"
	// +kubebuilder:validation:XValidation:message="'name' excludes 'tags' and 'id' in a term of securityGroupSelectorTerms",rule="!self.all(x, has(x.name) && (has(x.tags) || has(x.id)))"
	// +kubebuilder:validation:MaxItems=30
	// +required
	SecurityGroupSelectorTerms []SecurityGroupSelectorTerm `json:"securityGroupSelectorTerms" hash:"ignore"`
	// CapacityReservationSelectorTerms find reserved capacity that nodes may use.
	// +kubebuilder:validation:XValidation:message="a term of capacityReservationSelectorTerms needs one of 'tags', 'id' and 'instanceMatchCriteria'",rule="self.all(x, has(x.tags) || has(x.id) || has(x.instanceMatchCriteria))"
	// +kubebuilder:validation:XValidation:message="'id' excludes everything else in a term of capacityReservationSelectorTerms",rule="!self.all(x, has(x.id) && (has(x.tags) || has(x.ownerID) || has(x.instanceMatchCriteria)))"
	// +kubebuilder:validation:MaxItems=30
	// +optional
	CapacityReservationSelectorTerms []CapacityReservationSelectorTerm `json:"capacityReservationSelectorTerms,omitempty" hash:"ignore"`
	// PlacementGroupSelector names the placement group that every instance of this class goes into.
	// +optional
	PlacementGroupSelector *PlacementGroupSelector `json:"placementGroupSelector,omitempty"`
	// AssociatePublicIPAddress is whether instances get a public address; unset leaves it to the subnet.
	// +optional
	AssociatePublicIPAddress *bool `json:"associatePublicIPAddress,omitempty"`
	// IPPrefixCount is the number of IPv4 (or IPv6) prefixes on the network interface.
	// +kubebuilder:validation:Minimum=0
	// +optional
	IPPrefixCount *int32 `json:"ipPrefixCount,omitempty" hash:"ignore"`
	// AMISelectorTerms find the images that nodes run: of those that suit an instance type, the newest.
	// +kubebuilder:validation:XValidation:message="a term of amiSelectorTerms needs one of 'tags', 'id', 'name', 'alias' and 'ssmParameter'",rule="self.all(x, has(x.tags) || has(x.id) || has(x.name) || has(x.alias) || has(x.ssmParameter))"
	// +kubebuilder:validation:XValidation:message="'id' excludes 'alias', 'tags', 'name' and 'owner' in amiSelectorTerms",rule="!self.exists(x, has(x.id) && (has(x.alias) || has(x.tags) || has(x.name) || has(x.owner)))"
	// +kubebuilder:validation:XValidation:message="'alias' excludes 'id', 'tags', 'name' and 'owner' in amiSelectorTerms",rule="!self.exists(x, has(x.alias) && (has(x.id) || has(x.tags) || has(x.name) || has(x.owner)))"
	// +kubebuilder:validation:XValidation:message="a term with 'alias' must be the only one of amiSelectorTerms",rule="!(self.exists(x, has(x.alias)) && self.size() != 1)"
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=30
	// +required
	AMISelectorTerms []AMISelectorTerm `json:"amiSelectorTerms" hash:"ignore"`
	// AMIFamily decides about the form of user data and about defaults. It follows from an alias.
	// +kubebuilder:validation:Enum:={AL2,AL2023,Bottlerocket,Custom,Windows2019,Windows2022,Windows2025}
	// +optional
	AMIFamily string `json:"amiFamily,omitempty" hash:"ignore"`
	// UserData is merged with what the family needs; with family Custom it is used as it is.
	// +optional
	UserData string `json:"userData,omitempty"`
	// Role is the IAM role of nodes. An instance profile is made for it.
	// +kubebuilder:validation:XValidation:rule="self != ''",message="role cannot be empty"
	// +optional
	Role string `json:"role,omitempty"`
	// InstanceProfile is an instance profile to use as it is, instead of Role.
	// +kubebuilder:validation:XValidation:rule="self != ''",message="instanceProfile cannot be empty"
	// +optional
	InstanceProfile string `json:"instanceProfile,omitempty"`
	// Tags are put on every AWS resource made for this class.
	// +kubebuilder:validation:XValidation:message="empty tag keys aren't supported",rule="self.all(k, k != '')"
	// +kubebuilder:validation:XValidation:message="tag contains a restricted tag matching eks:eks-cluster-name",rule="self.all(k, k !='eks:eks-cluster-name')"
	// +kubebuilder:validation:XValidation:message="tag contains a restricted tag matching kubernetes.io/cluster/",rule="self.all(k, !k.startsWith('kubernetes.io/cluster') )"
	// +kubebuilder:validation:XValidation:message="tag contains a restricted tag matching karpenter.sh/nodepool",rule="self.all(k, k != 'karpenter.sh/nodepool')"
	// +kubebuilder:validation:XValidation:message="tag contains a restricted tag matching karpenter.sh/nodeclaim",rule="self.all(k, k !='karpenter.sh/nodeclaim')"
	// +kubebuilder:validation:XValidation:message="tag contains a restricted tag matching karpenter.k8s.aws/ec2nodeclass",rule="self.all(k, k !='karpenter.k8s.aws/ec2nodeclass')"
	// +optional
	Tags map[string]string `json:"tags,omitempty"`
	// Kubelet is a KubeletConfiguration (kubelet.config.k8s.io/v1beta1), without apiVersion and kind.
	// See KubeletConfiguration for what is interpreted here.
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Schemaless
	// +optional
	Kubelet *runtime.RawExtension `json:"kubelet,omitempty" hash:"ignore"`
	// BlockDeviceMappings replace the family's default disks.
	// +kubebuilder:validation:XValidation:message="blockDeviceMappings can have at most one rootVolume",rule="self.filter(x, has(x.rootVolume)?x.rootVolume==true:false).size() <= 1"
	// +kubebuilder:validation:MaxItems=50
	// +optional
	BlockDeviceMappings []BlockDeviceMapping `json:"blockDeviceMappings,omitempty"`
	// InstanceStorePolicy states what local NVMe disks are used for: RAID0 makes one volume of them for kubelet
	// and containers.
	// +kubebuilder:validation:Enum={RAID0}
	// +optional
	InstanceStorePolicy InstanceStorePolicy `json:"instanceStorePolicy,omitempty"`
	// NetworkInterfaces lay the interfaces out by hand.
	// +kubebuilder:validation:XValidation:message="networkInterfaces needs an interface of type 'interface' at networkCardIndex 0, deviceIndex 0",rule="self.size() == 0 || self.exists(x, x.deviceIndex == 0 && x.networkCardIndex == 0 && x.interfaceType == 'interface')"
	// +kubebuilder:validation:XValidation:message="networkInterfaces must differ in networkCardIndex and deviceIndex, with at most one 'efa-only' per card",rule="self.all(x, self.filter(y, x.networkCardIndex == y.networkCardIndex && x.deviceIndex == y.deviceIndex).size() == 1 && (x.interfaceType != 'efa-only' || self.filter(y, x.networkCardIndex == y.networkCardIndex && y.interfaceType == 'efa-only').size() == 1))"
	// +kubebuilder:validation:MaxItems=150
	// +optional
	NetworkInterfaces []NetworkInterface `json:"networkInterfaces,omitempty"`
	// DetailedMonitoring turns on EC2's detailed monitoring.
	// +optional
	DetailedMonitoring *bool `json:"detailedMonitoring,omitempty"`
	// MetadataOptions configure the instance metadata service.
	// +kubebuilder:default={httpEndpoint: enabled, httpProtocolIPv6: disabled, httpPutResponseHopLimit: 1, httpTokens: required}
	// +optional
	MetadataOptions *MetadataOptions `json:"metadataOptions,omitempty"`
	// EnclaveOptions are about Nitro Enclaves. Without them, instances have none.
	// +optional
	EnclaveOptions *EnclaveOptions `json:"enclaveOptions,omitempty"`
	// ConnectionTracking sets idle timeouts of the network interfaces. Only Nitro types have them.
	// +optional
	ConnectionTracking *ConnectionTracking `json:"connectionTracking,omitempty"`
	// Context is handed to EC2 CreateFleet.
	// +optional
	Context string `json:"context,omitempty"`
	// CPUOptions choose among instance types by features of their CPU.
	// +optional
	CPUOptions *CPUOptions `json:"cpuOptions,omitempty"`
}

// EnclavesEnabled reports whether instances may create Nitro Enclaves.
func (c *EC2NodeClass) EnclavesEnabled() bool {
	return c.Spec.EnclaveOptions != nil && c.Spec.EnclaveOptions.Enabled
}

// InstanceStorePolicy describes what local NVMe disks are used for.
type InstanceStorePolicy string

// InstanceStoreRAID0 stripes the local disks into one volume.
const InstanceStoreRAID0 InstanceStorePolicy = "RAID0"

// The AMI families.
const (
	AMIFamilyAL2          = "AL2"
	AMIFamilyAL2023       = "AL2023"
	AMIFamilyBottlerocket = "Bottlerocket"
	AMIFamilyCustom       = "Custom"
	AMIFamilyWindows2019  = "Windows2019"
	AMIFamilyWindows2022  = "Windows2022"
	AMIFamilyWindows2025  = "Windows2025"
)

// EC2NodeClassStatus describes what the selectors found, and whether nodes can be launched.
type EC2NodeClassStatus struct {
	// Subnets, those with most free addresses first.
	// +optional
	Subnets []Subnet `json:"subnets,omitempty"`
	// SecurityGroups, by ID.
	// +optional
	SecurityGroups []SecurityGroup `json:"securityGroups,omitempty"`
	// CapacityReservations that may be used.
	// +optional
	CapacityReservations []CapacityReservation `json:"capacityReservations,omitempty"`
	// AMIs, newest first.
	// +optional
	AMIs []AMI `json:"amis,omitempty"`
	// InstanceProfile that nodes are launched with.
	// +optional
	InstanceProfile string `json:"instanceProfile,omitempty"`
	// +listType=map
	// +listMapKey=type
	// +optional
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Subnet is one that the selectors found.
type Subnet struct {
	// +required
	ID string `json:"id"`
	// +required
	Zone string `json:"zone"`
	// +optional
	ZoneID string `json:"zoneID,omitempty"`
}

// SecurityGroup is one that the selectors found.
type SecurityGroup struct {
	// +required
	ID string `json:"id"`
	// +optional
	Name string `json:"name,omitempty"`
}

// AMI is an image that the selectors found, with the instance types that it suits.
type AMI struct {
	// +required
	ID string `json:"id"`
	// Deprecated images still launch, but make way for others.
	// +optional
	Deprecated bool `json:"deprecated,omitempty"`
	// +optional
	Name string `json:"name,omitempty"`
	// Requirements that an instance type must meet to run the image.
	// +required
	Requirements []AMIRequirement `json:"requirements"`
}

// AMIRequirement constrains one label of the instance types that an image suits.
type AMIRequirement struct {
	// +required
	Key string `json:"key"`
	// +required
	Operator string `json:"operator"`
	// +listType=atomic
	// +optional
	Values []string `json:"values,omitempty"`
}

// CapacityReservation is one that the selectors found.
type CapacityReservation struct {
	// +required
	AvailabilityZone string `json:"availabilityZone"`
	// EndTime is the time when the reservation expires.
	// +optional
	EndTime *metav1.Time `json:"endTime,omitempty"`
	// +kubebuilder:validation:Pattern:="^cr-[0-9a-z]+$"
	// +required
	ID string `json:"id"`
	// +kubebuilder:validation:Enum:={open,targeted}
	// +required
	InstanceMatchCriteria string `json:"instanceMatchCriteria"`
	// +required
	InstanceType string `json:"instanceType"`
	// Interruptible reservations may be reclaimed by their owner.
	// +optional
	Interruptible bool `json:"interruptible,omitempty"`
	// +kubebuilder:validation:Pattern:="^[0-9]{12}$"
	// +required
	OwnerID string `json:"ownerID"`
	// +kubebuilder:default=default
	// +kubebuilder:validation:Enum:={default,capacity-block}
	// +optional
	ReservationType string `json:"reservationType,omitempty"`
	// State is expiring from 40 minutes before a capacity block expires.
	// +kubebuilder:default=active
	// +kubebuilder:validation:Enum:={active,expiring}
	// +optional
	State string `json:"state,omitempty"`
}

// GetConditions returns the status conditions.
func (c *EC2NodeClass) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the status conditions.
func (c *EC2NodeClass) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// ConditionTypes are the conditions that Ready depends on.
func (c *EC2NodeClass) ConditionTypes() condition.Types {
	return condition.Types{
		Dependents: []string{
			ConditionAMIsReady, ConditionSubnetsReady, ConditionSecurityGroupsReady,
			ConditionInstanceProfileReady, ConditionPlacementGroupReady, ConditionValidationSucceeded,
		},
		Optional: []string{ConditionCapacityReservationsReady},
		Vetoes:   []string{ConditionNodesCanJoin},
	}
}
