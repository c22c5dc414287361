package instancetype

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	corev1 "k8s.io/api/core/v1"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/engine/catalog"
	"github.com/dovetail-k8s/dovetail/internal/engine/requirement"
)

// offerings are one per zone of the market and capacity type of the type, in this order, then one per reservation. zones are
// those that the class can launch the type in; offerings elsewhere are listed, and unavailable.
func (m machine) offerings(zones []string, market Market, labels offeringLabels) []catalog.Offering {
	usable := m.compatible()
	offerings := make([]catalog.Offering, 0, 2*len(market.Zones))
	for _, zone := range market.Zones {
		reachable := usable && slices.Contains(zones, zone)
		for _, capacityType := range m.capacityTypes() {
			price, priced := m.price(capacityType, zone, market)
			exhausted := market.Unavailable != nil && market.Unavailable(m.name, zone, capacityType)
			offerings = append(offerings, catalog.Offering{
				Zone:         zone,
				CapacityType: capacityType,
				Requirements: labels.of(m, zone, capacityType),
				Price:        price,
				Available:    reachable && priced && !exhausted,
			})
		}
	}
	return append(offerings, m.reserved(zones, market)...)
}

func (m machine) price(capacityType, zone string, market Market) (float64, bool) {
	if capacityType == karpv1.CapacityTypeSpot {
		return market.Spot(m.name, zone)
	}
	return market.OnDemand(m.name)
}

// offeringLabels are the labels of offerings by zone and capacity type: for one node class, they are the same of every type.
type offeringLabels map[[2]string]requirement.Set

func (known offeringLabels) of(m machine, zone, capacityType string) requirement.Set {
	key := [2]string{zone, capacityType}
	set, ok := known[key]
	if !ok {
		set = m.offeringLabels(zone, capacityType)
		known[key] = set
	}
	return set
}

func (m machine) offeringLabels(zone, capacityType string) requirement.Set {
	labels := []requirement.Requirement{
		requirement.In(karpv1.LabelCapacityType, capacityType),
		requirement.In(corev1.LabelTopologyZone, zone),
		requirement.DoesNotExist(awsv1.LabelReservationID),
		requirement.DoesNotExist(awsv1.LabelReservationType),
		requirement.DoesNotExist(awsv1.LabelReservationInterruptible),
	}
	if id := m.zoneID(zone); id != "" {
		labels = append(labels, requirement.In(awsv1.LabelZoneID, id))
	}
	return requirement.NewSet(labels...)
}

// compatible tells whether the type can do what the class asks of an instance. Each rule is a reason
// for which EC2 would refuse the launch, or the image would not boot.
func (m machine) compatible() bool {
	switch {
	case strings.HasPrefix(m.name, "a1.") && m.class.Family.Name == awsv1.AMIFamilyAL2023:
		return false // AL2023 needs a newer Arm than Graviton 1
	case m.class.NestedVirtualization && !m.nestedVirtualization():
		return false
	case m.class.ConnectionTracking && m.Hypervisor != ec2types.InstanceTypeHypervisorNitro:
		return false
	}
	return m.carriesInterfaces()
}

func (m machine) nestedVirtualization() bool {
	return m.ProcessorInfo != nil &&
		slices.Contains(m.ProcessorInfo.SupportedFeatures, ec2types.SupportedAdditionalProcessorFeature("nested-virtualization"))
}

// carriesInterfaces tells whether the type has room for the class's layout of network interfaces.
func (m machine) carriesInterfaces() bool {
	layout := m.class.NetworkInterfaces
	if len(layout) == 0 {
		return true
	}
	if m.NetworkInfo == nil || m.NetworkInfo.EnaSupport == ec2types.EnaSupportUnsupported || int64(m.efaOnly(-1)) > m.efaMaximum() {
		return false
	}
	for _, i := range layout {
		card, ok := m.card(i.NetworkCardIndex)
		if !ok || i.DeviceIndex >= aws.ToInt32(card.MaximumNetworkInterfaces) {
			return false
		}
	}
	return true
}
