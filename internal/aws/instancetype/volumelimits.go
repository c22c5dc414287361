package instancetype

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// ebsDriver is the CSI driver that attaches EBS volumes.
const ebsDriver = "ebs.csi.aws.com"

// interfacesAtStart sets how many network interfaces a node has when its CSI driver counts them: its first, and the one
// that the VPC CNI keeps ready.
const interfacesAtStart = 2

// volumeLimits returns how many EBS volumes a node can attach for pods, as its CSI driver will report: EC2's limit,
// less the volumes of the node class. EC2's limit already excludes the first network interface, and local disks and
// accelerators where these use attachments; if the limit is shared, each further network interface uses one.
func (m typeForClass) volumeLimits() map[string]int {
	if m.EbsInfo == nil || m.EbsInfo.MaximumEbsAttachments == nil {
		return nil
	}
	n := int(*m.EbsInfo.MaximumEbsAttachments) - m.ownVolumes()
	if m.EbsInfo.AttachmentLimitType == ec2types.AttachmentLimitTypeShared && m.Hypervisor != ec2types.InstanceTypeHypervisorXen {
		n -= m.interfaces() - 1
	}
	return map[string]int{ebsDriver: max(1, n)} // the driver reports no less, either
}

// ownVolumes returns the number of volumes that an instance is launched with, including the root volume.
func (m typeForClass) ownVolumes() int {
	devices := m.class.BlockDevices
	if len(devices) == 0 {
		devices = m.class.Family.BlockDevices
	}
	n := 0
	for i := range devices {
		if devices[i].EBS != nil {
			n++
		}
	}
	return max(1, n)
}

// interfaces returns how many network interfaces a node has when its CSI driver starts.
func (m typeForClass) interfaces() int {
	n := interfacesAtStart
	if m.NetworkInfo != nil && m.NetworkInfo.MaximumNetworkInterfaces != nil {
		n = min(n, int(aws.ToInt32(m.NetworkInfo.MaximumNetworkInterfaces)))
	}
	return max(1, n, len(m.class.NetworkInterfaces))
}
