package instancetype

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

// typesWithSwap are the types with instances that start with swap space, with which a kubelet does not start.
var typesWithSwap = []string{"c1.medium", "m1.small"}

// incompatibility returns why the type cannot satisfy the node class; empty if it can. With each of these reasons EC2
// would reject the launch, or the instance would not become a node.
func (m typeForClass) incompatibility() string {
	switch class := m.class; {
	case class.LaunchBlocked != "":
		return class.LaunchBlocked
	case m.expressionError != "":
		return m.expressionError
	case class.Family.OS == corev1.Windows && len(m.os()) == 0:
		return "Windows does not run on its processor"
	case strings.HasPrefix(m.name, "a1.") && class.Family.Name == awsv1.AMIFamilyAL2023:
		return "AL2023 does not run on its processor"
	case slices.Contains(typesWithSwap, m.name) && class.Family.Name != awsv1.AMIFamilyCustom:
		return "it starts with swap on, with which kubelet does not run"
	case class.NestedVirtualization && !m.nestedVirtualization():
		return "no nested virtualization"
	case class.Enclaves && m.NitroEnclavesSupport != ec2types.NitroEnclavesSupportSupported:
		return "no Nitro Enclaves"
	case class.ConnectionTracking && m.Hypervisor != ec2types.InstanceTypeHypervisorNitro:
		return "connection tracking needs the Nitro hypervisor"
	case class.Group.ID != "" && !m.fitsPlacementGroup():
		return "it cannot be in a placement group of strategy " + class.Group.Strategy
	}
	return m.interfaceIncompatibility()
}

func (m typeForClass) nestedVirtualization() bool {
	return m.ProcessorInfo != nil &&
		slices.Contains(m.ProcessorInfo.SupportedFeatures, ec2types.SupportedAdditionalProcessorFeature("nested-virtualization"))
}

// fitsPlacementGroup reports whether instances of the type can be in the class's placement group.
func (m typeForClass) fitsPlacementGroup() bool {
	return m.PlacementGroupInfo != nil &&
		slices.Contains(m.PlacementGroupInfo.SupportedStrategies, ec2types.PlacementGroupStrategy(m.class.Group.Strategy))
}

// interfaceIncompatibility returns why the type does not support the class's network interfaces; empty if it does.
func (m typeForClass) interfaceIncompatibility() string {
	layout := m.class.NetworkInterfaces
	switch {
	case len(layout) == 0:
		return ""
	case m.NetworkInfo == nil || len(m.NetworkInfo.NetworkCards) == 0 || m.NetworkInfo.EnaSupport == ec2types.EnaSupportUnsupported:
		return "networkInterfaces need ENA"
	case int64(m.countEFAOnly(-1 /* all cards */)) > m.efaMaximum():
		return "networkInterfaces has more EFA interfaces than it takes"
	}
	for _, i := range layout {
		card, ok := m.networkCard(i.NetworkCardIndex)
		if !ok || int(i.NetworkCardIndex) >= len(m.NetworkInfo.NetworkCards) {
			return "networkInterfaces names a network card that it has not"
		}
		if i.DeviceIndex >= aws.ToInt32(card.MaximumNetworkInterfaces) {
			return "networkInterfaces has more interfaces than fit on a network card"
		}
	}
	return ""
}
