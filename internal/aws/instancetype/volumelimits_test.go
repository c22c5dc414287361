package instancetype_test

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
)

// The number of volumes that the EBS CSI driver of a new node will report, from EC2's limit and the volumes of the
// class.
func TestNewNodesReportTheVolumesThatTheyCanAttach(t *testing.T) {
	shared, dedicated := ec2types.AttachmentLimitTypeShared, ec2types.AttachmentLimitTypeDedicated
	disks := func(n int) func(*instancetype.Class) {
		return func(c *instancetype.Class) {
			for range n {
				c.BlockDevices = append(c.BlockDevices, awsv1.BlockDeviceMapping{EBS: &awsv1.BlockDevice{}})
			}
		}
	}
	interfaces := func(n int) func(*instancetype.Class) {
		return func(c *instancetype.Class) { c.NetworkInterfaces = make([]awsv1.NetworkInterface, n) }
	}
	nothing := func(*instancetype.Class) {}
	for _, c := range []struct {
		name, typ, family string
		kind              ec2types.AttachmentLimitType
		most, want        int
		edit              func(*instancetype.Class)
	}{
		{"shared with network interfaces", "m6i.2xlarge", awsv1.AMIFamilyAL2023, shared, 27, 25, nothing},
		{"shared, local disks already left out", "m5d.24xlarge", awsv1.AMIFamilyAL2023, shared, 23, 21, nothing},
		{"dedicated", "m7i.48xlarge", awsv1.AMIFamilyAL2023, dedicated, 128, 127, nothing},
		{"Bottlerocket has two volumes of its own", "m7i.48xlarge", awsv1.AMIFamilyBottlerocket, dedicated, 128, 126, nothing},
		{"the class adds volumes", "m7i.48xlarge", awsv1.AMIFamilyAL2023, dedicated, 128, 125, disks(3)},
		{"the class adds network interfaces", "m6i.2xlarge", awsv1.AMIFamilyAL2023, shared, 27, 23, interfaces(4)},
		{"Xen", "m4.large", awsv1.AMIFamilyAL2023, shared, 39, 38, nothing},
		{"never less than one", "m6i.2xlarge", awsv1.AMIFamilyAL2023, shared, 2, 1, disks(5)},
	} {
		t.Run(c.name, func(t *testing.T) {
			of := info(t, c.typ)
			if c.typ == "m4.large" {
				of.Hypervisor = ec2types.InstanceTypeHypervisorXen
			}
			ebs := ec2types.EbsInfo{}
			if of.EbsInfo != nil {
				ebs = *of.EbsInfo
			}
			ebs.AttachmentLimitType, ebs.MaximumEbsAttachments = c.kind, aws.Int32(int32(c.most))
			of.EbsInfo = &ebs
			got := resolved(t, settings, of, class(c.family, c.edit), market()).VolumeLimits
			if len(got) != 1 || got["ebs.csi.aws.com"] != c.want {
				t.Errorf("got %v, want %d", got, c.want)
			}
			ebs.MaximumEbsAttachments = nil
			if got := resolved(t, settings, of, class(c.family, c.edit), market()).VolumeLimits; got != nil {
				t.Errorf("EC2 says nothing, but the limits are %v", got)
			}
		})
	}
}
