package instancetype

import (
	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// ebsDriver is the CSI driver that attaches EBS volumes.
const ebsDriver = "ebs.csi.aws.com"

// interfacesAtStart is how many network interfaces a node has when its CSI driver counts them: its first, and the one that the VPC CNI
// keeps ready.
const interfacesAtStart = 2

// volumeLimits are how many EBS volumes a node can attach for pods, as the CSI driver on it will report: what EC2 says, less the volumes
// that the node class gives it. EC2's number already leaves out the first network interface, and local disks and accelerators where these
// take attachments, too; where the limit is shared, each further network interface takes one.
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

// ownVolumes are those that an instance is launched with, the root volume among them.
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

// interfaces is how many network interfaces a node has when its CSI driver starts.
func (m typeForClass) interfaces() int {
	n := interfacesAtStart
	if m.NetworkInfo != nil && m.NetworkInfo.MaximumNetworkInterfaces != nil {
		n = min(n, int(aws.ToInt32(m.NetworkInfo.MaximumNetworkInterfaces)))
	}
	return max(1, n, len(m.class.NetworkInterfaces))
}
