package launch

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/image"
	"github.com/dovetail-k8s/dovetail/internal/aws/instance"
	"github.com/dovetail-k8s/dovetail/internal/aws/instancetype"
	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

// TemplateSpec is everything that a launch template depends on.
type TemplateSpec struct {
	Class        *awsv1.EC2NodeClass
	ImageID      string
	UserData     string
	CapacityType string
	Tenancy      string
	// Placement of the instances; zero for none.
	Placement cloudprovider.Placement
	// EFAs is the number of EFA interfaces, 0 for a single plain interface.
	EFAs int
	IPv6 bool
	// Region of the instances.
	Region string
	// Tags of the template and of everything that is launched from it.
	Tags map[string]string
	// Reservation that instances are launched into; zero for none.
	Reservation cloudprovider.Reservation
	// ReservedCapacity keeps instances out of open capacity reservations unless Reservation is set.
	ReservedCapacity bool
}

// NamePrefix is the prefix of all launch template names.
const NamePrefix = "karpenter.k8s.aws"

// Template returns the request for a launch template. Its name is a hash of everything in it, including the cluster's
// identity (a tag). So templates with the same name are equal, and no two clusters share one.
func Template(b TemplateSpec) (*ec2.CreateLaunchTemplateInput, error) {
	data, err := b.data()
	if err != nil {
		return nil, err
	}
	in := &ec2.CreateLaunchTemplateInput{
		LaunchTemplateData: data,
		TagSpecifications:  []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeLaunchTemplate, Tags: instance.Tags(b.Tags)}},
	}
	content, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("hash launch template: %w", err)
	}
	sum := sha256.Sum256(content)
	in.LaunchTemplateName = aws.String(fmt.Sprintf("%s/%d", NamePrefix, binary.BigEndian.Uint64(sum[:])))
	return in, nil
}

func (b TemplateSpec) data() (*ec2types.RequestLaunchTemplateData, error) {
	devices, err := b.devices()
	if err != nil {
		return nil, err
	}
	spec := b.Class.Spec
	data := &ec2types.RequestLaunchTemplateData{
		BlockDeviceMappings: devices,
		EnclaveOptions:      &ec2types.LaunchTemplateEnclaveOptionsRequest{Enabled: aws.Bool(b.Class.EnclavesEnabled())},
		IamInstanceProfile:  &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String(b.Class.Status.InstanceProfile)},
		ImageId:             aws.String(b.ImageID),
		MetadataOptions:     b.metadata(),
		Monitoring:          &ec2types.LaunchTemplatesMonitoringRequest{Enabled: aws.Bool(aws.ToBool(spec.DetailedMonitoring))},
		NetworkInterfaces:   b.interfaces(),
		Placement:           b.placement(),
		TagSpecifications: []ec2types.LaunchTemplateTagSpecificationRequest{
			{ResourceType: ec2types.ResourceTypeNetworkInterface, Tags: instance.Tags(b.Tags)},
		},
		UserData: aws.String(base64.StdEncoding.EncodeToString([]byte(b.UserData))),
	}
	if b.CapacityType == karpv1.CapacityTypeSpot {
		data.TagSpecifications = append(data.TagSpecifications,
			ec2types.LaunchTemplateTagSpecificationRequest{ResourceType: ec2types.ResourceTypeSpotInstancesRequest, Tags: instance.Tags(b.Tags)})
	}
	if spec.CPUOptions != nil && spec.CPUOptions.NestedVirtualization != "" {
		data.CpuOptions = &ec2types.LaunchTemplateCpuOptionsRequest{
			NestedVirtualization: ec2types.NestedVirtualizationSpecification(spec.CPUOptions.NestedVirtualization),
		}
	}
	if b.ReservedCapacity {
		setReservation(data, b.Reservation)
	}
	return data, nil
}

// withoutIPv6Metadata are the regions with an EC2 that does not know the option.
var withoutIPv6Metadata = []string{
	"us-iso-east-1",
	"us-iso-west-1",
	"us-isob-east-1",
	"us-isob-west-1",
	"us-isof-south-1",
	"us-isof-east-1",
}

func (b TemplateSpec) metadata() *ec2types.LaunchTemplateInstanceMetadataOptionsRequest {
	m := awsv1.MetadataOptions{
		HTTPEndpoint:            "enabled",
		HTTPProtocolIPv6:        "disabled",
		HTTPPutResponseHopLimit: aws.Int64(1),
		HTTPTokens:              "required",
	}
	if own := b.Class.Spec.MetadataOptions; own != nil {
		m = *own
	}
	out := &ec2types.LaunchTemplateInstanceMetadataOptionsRequest{
		HttpEndpoint:         ec2types.LaunchTemplateInstanceMetadataEndpointState(m.HTTPEndpoint),
		HttpTokens:           ec2types.LaunchTemplateHttpTokensState(m.HTTPTokens),
		InstanceMetadataTags: ec2types.LaunchTemplateInstanceMetadataTagsStateDisabled,
	}
	if m.HTTPPutResponseHopLimit != nil {
		out.HttpPutResponseHopLimit = aws.Int32(int32(*m.HTTPPutResponseHopLimit))
	}
	if !slices.Contains(withoutIPv6Metadata, b.Region) {
		out.HttpProtocolIpv6 = ec2types.LaunchTemplateInstanceMetadataProtocolIpv6(m.HTTPProtocolIPv6)
	}
	return out
}

func (b TemplateSpec) interfaces() []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
	if own := b.Class.Spec.NetworkInterfaces; len(own) > 0 {
		out := make([]ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest, 0, len(own))
		for _, i := range own {
			out = append(out, b.nic(i.NetworkCardIndex, i.DeviceIndex, i.InterfaceType))
		}
		return out
	}
	if b.EFAs == 0 {
		plain := b.nic(0, 0, "")
		plain.NetworkCardIndex = nil
		return []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{plain}
	}
	var out []ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest
	for card := range int32(b.EFAs) {
		out = append(out, b.nic(card, min(card, 1), "efa"))
	}
	return out
}

func (b TemplateSpec) nic(card, device int32, kind string) ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest {
	out := ec2types.LaunchTemplateInstanceNetworkInterfaceSpecificationRequest{
		NetworkCardIndex: aws.Int32(card),
		DeviceIndex:      aws.Int32(device),
	}
	for _, g := range b.Class.Status.SecurityGroups {
		out.Groups = append(out.Groups, g.ID)
	}
	slices.Sort(out.Groups)
	if kind != "" {
		out.InterfaceType = aws.String(kind)
	}
	if kind == awsv1.InterfaceTypeEFAOnly {
		return out
	}
	spec := b.Class.Spec
	out.AssociatePublicIpAddress = spec.AssociatePublicIPAddress
	if t := spec.ConnectionTracking; t != nil {
		out.ConnectionTrackingSpecification = &ec2types.ConnectionTrackingSpecificationRequest{
			TcpEstablishedTimeout: t.TCPEstablishedTimeout,
			UdpStreamTimeout:      t.UDPStreamTimeout,
			UdpTimeout:            t.UDPTimeout,
		}
	}
	if b.IPv6 {
		out.PrimaryIpv6 = aws.Bool(true)
		out.Ipv6AddressCount = aws.Int32(1)
		out.Ipv6PrefixCount = spec.IPPrefixCount
	} else {
		out.Ipv4PrefixCount = spec.IPPrefixCount
	}
	return out
}

// devices returns the block devices: the user's, else the family's.
func (b TemplateSpec) devices() ([]ec2types.LaunchTemplateBlockDeviceMappingRequest, error) {
	mappings := b.Class.Spec.BlockDeviceMappings
	if len(mappings) == 0 {
		mappings = instancetype.FamilyOf(image.Family(b.Class)).BlockDevices
	}
	var out []ec2types.LaunchTemplateBlockDeviceMappingRequest
	for _, m := range mappings {
		d := ec2types.LaunchTemplateBlockDeviceMappingRequest{DeviceName: aws.String(m.DeviceName)}
		if m.EBS != nil {
			ebs, err := volume(m.EBS)
			if err != nil {
				return nil, fmt.Errorf("block device %s: %w", m.DeviceName, err)
			}
			d.Ebs = ebs
		}
		out = append(out, d)
	}
	return out, nil
}

func volume(d *awsv1.BlockDevice) (*ec2types.LaunchTemplateEbsBlockDeviceRequest, error) {
	out := &ec2types.LaunchTemplateEbsBlockDeviceRequest{
		DeleteOnTermination:      d.DeleteOnTermination,
		Encrypted:                d.Encrypted,
		VolumeInitializationRate: d.VolumeInitializationRate,
		VolumeType:               ec2types.VolumeType(d.VolumeType),
	}
	if d.KMSKeyID != "" {
		out.KmsKeyId = aws.String(d.KMSKeyID)
	}
	if d.SnapshotID != "" {
		out.SnapshotId = aws.String(d.SnapshotID)
	}
	var err error
	if out.Iops, err = unlessZero("iops", d.IOPS); err != nil {
		return nil, err
	}
	if out.Throughput, err = unlessZero("throughput", d.Throughput); err != nil {
		return nil, err
	}
	if d.VolumeSize != nil {
		const gib = 1 << 30
		out.VolumeSize = aws.Int32(int32((d.VolumeSize.Value() + gib - 1) / gib))
	}
	return out, nil
}

func unlessZero(name string, n *int64) (*int32, error) {
	if n == nil || *n == 0 {
		return nil, nil
	}
	if *n < 0 || *n > 1<<31-1 {
		return nil, fmt.Errorf("%s %d is out of range", name, *n)
	}
	return aws.Int32(int32(*n)), nil
}
