// Package join says why instances do not become nodes. Facts go in, findings come out; nothing is called.
//
// A node joins when its role is mapped to a Kubernetes identity of nodes, its network lets it reach the API
// server, and its image starts a kubelet that suits the cluster. Each of these is judged by a function of its own
// from what could be read. A finding is certain only if all that it depends on was read; what was not is a
// finding of its own, so that nobody takes silence for health.
package join

import (
	"fmt"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// Causes of nodes that do not join. They are reasons of conditions and values of a metric's label.
const (
	NodeRoleNotMapped          = "NodeRoleNotMapped"
	NodeRoleOfOtherAccount     = "NodeRoleOfOtherAccount"
	ControllerRoleMapped       = "ControllerRoleMappedInstead"
	AccessEntryWrongType       = "AccessEntryWrongType"
	WindowsKubeProxyDenied     = "WindowsKubeProxyDenied"
	AuthMapMalformed           = "AuthMapMalformed"
	AuthModeIgnoresMapping     = "AuthModeIgnoresMapping"
	InstanceProfileWrongRole   = "InstanceProfileWrongRole"
	InstanceProfileNotFound    = "InstanceProfileNotFound"
	RoleMappingUnchecked       = "RoleMappingUnchecked"
	NetworkUnchecked           = "NetworkUnchecked"
	GroupsOfOtherVPC           = "SecurityGroupSubnetVPCMismatch"
	NoEgress                   = "SecurityGroupWithoutEgress443"
	ClusterRejectsNodes        = "ClusterSecurityGroupRejectsNodes"
	SubnetWithoutRoute         = "SubnetWithoutRoute"
	SubnetWithoutPublicIP      = "SubnetWithoutPublicIP"
	SubnetFull                 = "SubnetFull"
	PublicAccessRestricted     = "EndpointPublicAccessRestricted"
	EndpointNameUnresolved     = "EndpointNameUnresolved"
	EndpointUnreachable        = "EndpointUnreachable"
	EndpointUntrusted          = "EndpointUntrusted"
	ImageFamilyMismatch        = "ImageFamilyMismatch"
	KubeletTooOld              = "KubeletTooOld"
	KubeletTooNew              = "KubeletTooNew"
	UserDataWrongFormat        = "UserDataWrongFormat"
	BootstrapFailed            = "BootstrapFailed"
	KubeletRefusesToStart      = "KubeletRefusesToStart"
	NodeUnauthorized           = "NodeUnauthorized"
	NodeForbidden              = "NodeForbidden"
	NodeRolePolicyMissing      = "NodeRolePolicyMissing"
	WebhookBlocksNodes         = "WebhookBlocksNodes"
	WebhooksUnchecked          = "WebhooksUnchecked"
	VolumeKeyDenied            = "VolumeKeyDenied"
	VolumeLimitExceeded        = "VolumeLimitExceeded"
	SnapshotNotFound           = "SnapshotNotFound"
	InstanceShutItselfDown     = "InstanceShutItselfDown"
	InstanceFailed             = "InstanceFailed"
	SpotInterrupted            = "SpotInterrupted"
	InsufficientCapacity       = "InsufficientCapacity"
	InstanceTerminatedByOthers = "InstanceTerminatedByOthers"
	ConsoleUnchecked           = "ConsoleUnchecked"
	InstanceUnchecked          = "InstanceUnchecked"
)

// Cluster is what remedies name.
type Cluster struct {
	Name, Region string
	// Version is the minor version of Kubernetes, such as 1.33; empty if it is not known.
	Version string
}

// unchecked says what could not be looked at.
func unchecked(cause, what, why string) cloudprovider.Finding {
	return cloudprovider.Finding{Cause: cause, Certainty: cloudprovider.Unchecked, Message: fmt.Sprintf("%s could not be checked: %s", what, why)}
}

// standing is a certain fault of the configuration.
func misconfiguration(cause, scope, message, remedy string) cloudprovider.Finding {
	return cloudprovider.Finding{Cause: cause, Certainty: cloudprovider.Certain, Scope: scope, Standing: true, Message: message, Remedy: remedy}
}

// RoleScope is that of findings about a role.
func RoleScope(role string) string { return "role/" + RoleName(role) }
