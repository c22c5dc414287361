// Package join explains why instances do not become nodes. It is pure: facts go in, findings come out.
//
// A node joins when its role is mapped to a Kubernetes identity for nodes, its network lets it reach the API server,
// and its image starts a kubelet that fits the cluster. A function checks each of these from the facts that could be
// read. A finding is certain only if all facts that it depends on were read. A fact that could not be read is a finding
// of its own, so that silence does not look like health.
package join

import (
	"fmt"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// Causes of nodes that do not join. They are reasons of conditions and label values of a metric.
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

// Cluster is the cluster in remedies.
type Cluster struct {
	Name, Region string
	// Version is the minor version of Kubernetes, such as 1.33; empty if it is not known.
	Version string
}

// unchecked is a finding about something that could not be checked.
func unchecked(cause, what, why string) cloudprovider.Finding {
	return cloudprovider.Finding{
		Cause:     cause,
		Certainty: cloudprovider.Unchecked,
		Message:   fmt.Sprintf("%s could not be checked: %s", what, why),
	}
}

// misconfiguration is a certain finding about the configuration.
func misconfiguration(cause, scope, message, remedy string) cloudprovider.Finding {
	return cloudprovider.Finding{
		Cause:             cause,
		Certainty:         cloudprovider.Certain,
		Scope:             scope,
		FromConfiguration: true,
		Message:           message,
		Remedy:            remedy,
	}
}

// RoleScope returns the scope of findings about a role.
func RoleScope(role string) string { return "role/" + RoleName(role) }
