package ec2_test

import (
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
)

// answer is an error of the EC2 query protocol, or nothing.
type answer struct {
	Status  int
	Code    string `xml:"Errors>Error>Code"`
	Message string `xml:"Errors>Error>Message"`
	ID      string `xml:"RequestID"`
}

// post sends parameters as they are, which no SDK would let one do.
func (a *account) post(t *testing.T, parameters string, key string) answer {
	t.Helper()
	request := must(
		http.NewRequestWithContext(t.Context(), http.MethodPost, a.URL, strings.NewReader(parameters+"&Version=2016-11-15")),
	)(
		t,
	)
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded; charset=utf-8")
	request.Header.Set(
		"Authorization",
		"AWS4-HMAC-SHA256 Credential="+key+"/20260821/us-east-1/ec2/aws4_request, SignedHeaders=host, Signature=0",
	)
	response := must(http.DefaultClient.Do(request))(t)
	defer response.Body.Close()
	got := answer{Status: response.StatusCode}
	if err := xml.Unmarshal(must(io.ReadAll(response.Body))(t), &got); err != nil && response.StatusCode != http.StatusOK {
		t.Fatal(err)
	}
	return got
}

// TestRefusals sends what EC2 rejects. IDs that exist are written as $subnet, $group, $image, $arm, $template.
func TestRefusals(t *testing.T) {
	const unknown = "0123456789abcdef0"
	long := url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(strings.Repeat("x", 16385))))
	run := "Action=RunInstances&MinCount=1&MaxCount=1&ImageId=$image&InstanceType=m5.large&SubnetId=$subnet"
	nic := strings.Replace(run, "&SubnetId", "&NetworkInterface.1.DeviceIndex=0&NetworkInterface.1.SubnetId", 1)
	spot := run + "&InstanceMarketOptions.MarketType=spot&InstanceMarketOptions.SpotOptions."
	fleet := "Action=CreateFleet&Type=instant&TargetCapacitySpecification.TotalTargetCapacity=1"
	config := "&LaunchTemplateConfigs.1.LaunchTemplateSpecification."
	override := "&LaunchTemplateConfigs.1.Overrides."
	create := "Action=CreateLaunchTemplate&LaunchTemplateName=fresh"
	many := ""
	for n := range 51 {
		many += fmt.Sprintf("&Tag.%d.Key=k%d", n+1, n)
	}
	a := open(t) // which no rejected call changes
	template := a.template(t, "general", nil)
	names := strings.NewReplacer(
		"$subnet",
		a.subnets[0],
		"$group",
		a.group,
		"$image",
		a.x86,
		"$arm",
		a.arm,
		"$template",
		*template.LaunchTemplateId,
	)
	for _, c := range []struct{ name, parameters, code, text string }{
		{"unknown action", "Action=DescribeTeapots", "InvalidAction", "The action DescribeTeapots is not valid for this web service."},
		{"no action", "DryRun=true", "MissingAction", ""},
		{"unknown parameter", "Action=DescribeVpcs&Colour=red", "UnknownParameter", "The parameter Colour is not recognized"},
		{"unknown nested parameter", run + "&Placement.Colour=red", "UnknownParameter", "The parameter Placement.Colour is not recognized"},
		{"unknown parameter of a list", run + "&TagSpecification.1.Colour=red", "UnknownParameter", "TagSpecification.1.Colour"},
		{"not an integer", "Action=DescribeVpcs&MaxResults=many", "InvalidParameterValue", "Invalid value 'many' for MaxResults"},
		{"not a boolean", "Action=DescribeVpcs&DryRun=maybe", "InvalidParameterValue", "Invalid value 'maybe' for DryRun"},
		{"dry run", "Action=DescribeInstanceTypes&DryRun=true", "DryRunOperation", "Request would have succeeded, but DryRun flag is set."},
		{"page too small", "Action=DescribeInstanceTypes&MaxResults=4", "InvalidParameterValue", "Expecting a value greater than or equal to 5"},
		{"page too large", "Action=DescribeInstanceTypes&MaxResults=101", "InvalidParameterValue", "Expecting a value less than or equal to 100"},
		{"token", "Action=DescribeVpcs&NextToken=abc", "InvalidNextToken", ""},
		{"filter", "Action=DescribeVpcs&Filter.1.Name=colour&Filter.1.Value.1=red", "InvalidParameterValue", "The filter 'colour' is invalid"},
		{
			"filter without values", "Action=DescribeVpcs&Filter.1.Name=vpc-id", "InvalidParameterValue",
			"The filter 'vpc-id' must have at least one value",
		},
		{"types of other regions", "Action=DescribeInstanceTypes&IncludeUnsupportedInRegion=true", "UnsupportedOperation", ""},
		{
			"aliases of images", "Action=DescribeLaunchTemplateVersions&LaunchTemplateName=general&ResolveAlias=true", "UnsupportedOperation",
			"aliases",
		},
		{
			"type", "Action=DescribeInstanceTypes&InstanceType.1=m5.tiny", "InvalidInstanceType",
			"The following supplied instance types do not exist: [m5.tiny]",
		},
		{
			"location type", "Action=DescribeInstanceTypeOfferings&LocationType=moon", "InvalidParameterValue",
			"Value (moon) for parameter LocationType is invalid",
		},

		{"malformed instance", "Action=DescribeInstances&InstanceId.1=i-xyz", "InvalidInstanceID.Malformed", `Invalid id: "i-xyz"`},
		{
			"unknown instance", "Action=DescribeInstances&InstanceId.1=i-" + unknown, "InvalidInstanceID.NotFound",
			"The instance ID 'i-" + unknown + "' does not exist",
		},
		{
			"two unknown instances", "Action=TerminateInstances&InstanceId.1=i-" + unknown + "&InstanceId.2=i-12345678",
			"InvalidInstanceID.NotFound", "The instance IDs 'i-" + unknown + ", i-12345678' do not exist",
		},
		{"instances and pages", "Action=DescribeInstances&MaxResults=10&InstanceId.1=i-" + unknown, "InvalidParameterCombination", ""},
		{"no instances", "Action=TerminateInstances", "MissingParameter", "The request must contain the parameter InstanceId"},
		{
			"unknown subnet", "Action=DescribeSubnets&SubnetId.1=subnet-" + unknown, "InvalidSubnetID.NotFound",
			"The subnet ID 'subnet-" + unknown + "' does not exist",
		},
		{
			"unknown group", "Action=DescribeSecurityGroups&GroupId.1=sg-" + unknown, "InvalidGroup.NotFound",
			"The security group 'sg-" + unknown + "' does not exist",
		},
		{"malformed group", "Action=DescribeSecurityGroups&GroupId.1=group", "InvalidGroupId.Malformed", ""},
		{"unknown VPC", "Action=DescribeVpcs&VpcId.1=vpc-" + unknown, "InvalidVpcID.NotFound", "The vpc ID 'vpc-" + unknown + "' does not exist"},
		{
			"unknown image", "Action=DescribeImages&ImageId.1=ami-" + unknown, "InvalidAMIID.NotFound",
			"The image id '[ami-" + unknown + "]' does not exist",
		},
		{"malformed image", "Action=DescribeImages&ImageId.1=image", "InvalidAMIID.Malformed", `Invalid id: "image" (expecting "ami-...")`},
		{
			"unknown volume", "Action=DescribeVolumes&VolumeId.1=vol-" + unknown, "InvalidVolume.NotFound",
			"The volume 'vol-" + unknown + "' does not exist.",
		},
		{"unknown interface", "Action=DescribeNetworkInterfaces&NetworkInterfaceId.1=eni-" + unknown, "InvalidNetworkInterfaceID.NotFound", ""},
		{"unknown route table", "Action=DescribeRouteTables&RouteTableId.1=rtb-" + unknown, "InvalidRouteTableID.NotFound", ""},
		{
			"unknown reservation", "Action=DescribeCapacityReservations&CapacityReservationId.1=cr-" + unknown,
			"InvalidCapacityReservationId.NotFound", "",
		},
		{
			"unknown placement group", "Action=DescribePlacementGroups&GroupName.1=near", "InvalidPlacementGroup.Unknown",
			"The Placement Group 'near' is unknown.",
		},
		{"tag an unknown thing", "Action=CreateTags&ResourceId.1=x-1&Tag.1.Key=k", "InvalidID", ""},
		{
			"reserved tag", "Action=CreateTags&ResourceId.1=$subnet&Tag.1.Key=aws:k", "InvalidParameterValue",
			"Tag keys starting with 'aws:' are reserved for internal use",
		},
		{
			"tag twice", "Action=CreateTags&ResourceId.1=$subnet&Tag.1.Key=k&Tag.2.Key=k", "InvalidParameterValue",
			"Duplicate tag key 'k' specified.",
		},

		{"too many tags", "Action=CreateTags&ResourceId.1=$subnet" + many, "TagLimitExceeded", ""},
		{"tag key too long", "Action=CreateTags&ResourceId.1=$subnet&Tag.1.Key=" + strings.Repeat("k", 129), "InvalidParameterValue", "128"},
		{
			"tag value too long", "Action=CreateTags&ResourceId.1=$subnet&Tag.1.Key=k&Tag.1.Value=" + strings.Repeat("v", 257),
			"InvalidParameterValue", "256",
		},

		{"template without data", create, "MissingParameter", "The request must contain the parameter LaunchTemplateData"},
		{
			"template name", "Action=CreateLaunchTemplate&LaunchTemplateName=a%20b&LaunchTemplateData.ImageId=$image",
			"InvalidLaunchTemplateName.MalformedException", "",
		},
		{
			"template name taken", "Action=CreateLaunchTemplate&LaunchTemplateName=general&LaunchTemplateData.ImageId=$image",
			"InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.",
		},
		{
			"user data too long", create + "&LaunchTemplateData.UserData=" + long, "InvalidUserData.Malformed",
			"User data is limited to 16384 bytes",
		},
		{
			"user data not base64", create + "&LaunchTemplateData.UserData=%23", "InvalidUserData.Malformed",
			"Invalid BASE64 encoding of user data.",
		},
		{
			"hop limit", create + "&LaunchTemplateData.MetadataOptions.HttpPutResponseHopLimit=65", "InvalidParameterValue",
			"HttpPutResponseHopLimit",
		},
		{
			"volume type",
			create + "&LaunchTemplateData.BlockDeviceMapping.1.DeviceName=a&LaunchTemplateData.BlockDeviceMapping.1.Ebs.VolumeType=gp9",
			"InvalidParameterValue", "Unknown volume type 'gp9'",
		},
		{
			"tags for a snapshot", create + "&LaunchTemplateData.TagSpecification.1.ResourceType=snapshot", "InvalidParameterValue",
			"'snapshot' is not a valid taggable resource type",
		},
		{
			"known but not simulated", create + "&LaunchTemplateData.InstanceRequirements.BareMetal=included", "UnsupportedOperation",
			"LaunchTemplateData.InstanceRequirements",
		},
		{
			"unknown template", "Action=DescribeLaunchTemplates&LaunchTemplateId.1=lt-" + unknown, "InvalidLaunchTemplateId.NotFound",
			"The specified launch template, with template ID lt-" + unknown + ", does not exist.",
		},
		{"malformed template", "Action=DeleteLaunchTemplate&LaunchTemplateId=lt-x", "InvalidLaunchTemplateId.Malformed", ""},
		{"unknown template name", "Action=DeleteLaunchTemplate&LaunchTemplateName=gone", "InvalidLaunchTemplateName.NotFoundException", ""},
		{
			"template by two names", "Action=DeleteLaunchTemplate&LaunchTemplateName=general&LaunchTemplateId=$template",
			"InvalidParameterCombination", "",
		},
		{"template by no name", "Action=DeleteLaunchTemplate", "MissingParameter", ""},

		{"no count", "Action=RunInstances&ImageId=$image", "MissingParameter", "The request must contain the parameter MinCount"},
		{"count", strings.Replace(run, "MinCount=1", "MinCount=2", 1), "InvalidParameterValue", ""},
		{"no image", "Action=RunInstances&MinCount=1&MaxCount=1", "MissingParameter", "The request must contain the parameter ImageId"},
		{
			"no subnet", "Action=RunInstances&MinCount=1&MaxCount=1&ImageId=$image&InstanceType=m5.large", "VPCIdNotSpecified",
			"No default VPC for this user",
		},
		{
			"architecture", strings.Replace(run, "$image", "$arm", 1), "InvalidParameterValue",
			"The architecture 'x86_64' of the specified instance type does not match",
		},
		{"zone of the subnet", run + "&Placement.AvailabilityZone=us-east-1b", "InvalidParameterValue", "is not in the Availability Zone"},
		{"address outside", run + "&PrivateIpAddress=10.0.7.7", "InvalidParameterValue", "does not fall within the subnet's address range"},
		{"groups and interfaces", run + "&SecurityGroupId.1=$group&NetworkInterface.1.DeviceIndex=0", "InvalidParameterCombination", ""},
		{
			"zone ID of another zone", run + "&Placement.AvailabilityZoneId=use1-az2", "InvalidParameterValue",
			"is not in the Availability Zone 'us-east-1b'",
		},
		{
			"zone and ID of another", run + "&Placement.AvailabilityZone=us-east-1a&Placement.AvailabilityZoneId=use1-az2",
			"InvalidParameterValue", "Invalid availability zone-id: [use1-az2]",
		},
		{"key pair", run + "&KeyName=mine", "InvalidKeyPair.NotFound", "The key pair 'mine' does not exist"},
		{
			"nested virtualization", run + "&CpuOptions.NestedVirtualization=enabled", "UnsupportedOperation",
			"The instance type 'm5.large' does not support nested virtualization.",
		},
		{"more cores than there are", run + "&CpuOptions.CoreCount=2", "InvalidParameterValue", "coreCount"},
		{"confidential computing", run + "&CpuOptions.AmdSevSnp=enabled", "UnsupportedOperation", "AMD SEV-SNP"},
		{"host name", run + "&PrivateDnsNameOptions.HostnameType=mine", "InvalidParameterValue", "HostnameType"},
		{
			"EBS card", run + "&BlockDeviceMapping.1.DeviceName=a&BlockDeviceMapping.1.Ebs.VolumeSize=9&BlockDeviceMapping.1.Ebs.EbsCardIndex=1",
			"UnsupportedOperation", "EBS card",
		},
		{"price too low", spot + "MaxPrice=0.0001", "SpotMaxPriceTooLow", "Your Spot request price of 0.0001 is lower"},
		{"price", spot + "MaxPrice=much", "InvalidParameterValue", "MaxPrice"},
		{"persistent spot", spot + "SpotInstanceType=persistent", "UnsupportedOperation", "one-time"},
		{"spot that stops", spot + "InstanceInterruptionBehavior=stop", "UnsupportedOperation", "terminated on interruption"},
		{
			"address of the interface outside", nic + "&NetworkInterface.1.PrivateIpAddress=10.0.7.7", "InvalidParameterValue",
			"does not fall within the subnet's address range",
		},
		{"more addresses than fit", nic + "&NetworkInterface.1.SecondaryPrivateIpAddressCount=10", "PrivateIpAddressLimitExceeded", ""},
		{"more prefixes than fit", nic + "&NetworkInterface.1.Ipv4PrefixCount=10", "PrivateIpAddressLimitExceeded", ""},
		{"device index", nic + "&NetworkInterface.2.DeviceIndex=3", "InvalidParameterValue", "device index 3"},
		{"IPv6 in a subnet without", nic + "&NetworkInterface.1.Ipv6AddressCount=1", "InvalidParameterValue", "does not have an IPv6 CIDR block"},
		{"more IPv6 addresses than fit", nic + "&NetworkInterface.1.Ipv6PrefixCount=11", "PrivateIpAddressLimitExceeded", "IPv6"},
		{
			"connection tracking", nic + "&NetworkInterface.1.ConnectionTrackingSpecification.TcpEstablishedTimeout=59", "InvalidParameterValue",
			"TcpEstablishedTimeout",
		},
		{"queues", nic + "&NetworkInterface.1.EnaQueueCount=2", "UnsupportedOperation", "EnaQueueCount"},
		{"dry run of a launch", run + "&DryRun=true", "DryRunOperation", ""},

		{
			"fleet without target", "Action=CreateFleet&Type=instant" + config + "LaunchTemplateName=general", "MissingParameter",
			"TargetCapacitySpecification",
		},
		{"fleet without template", fleet, "MissingParameter", "LaunchTemplateConfigs"},
		{
			"fleet of an unknown template", fleet + config + "LaunchTemplateName=gone&LaunchTemplateConfigs.1.Overrides.1.InstanceType=m5.large",
			"InvalidLaunchTemplateName.NotFoundException", "The specified launch template, with template name gone, does not exist.",
		},
		{
			"fleet of an unknown version", fleet + config + "LaunchTemplateName=general" + config + "Version=7",
			"InvalidLaunchTemplateId.VersionNotFound", "",
		},
		{"fleet of no type", fleet + config + "LaunchTemplateName=general", "InvalidFleetConfig", ""},
		{
			"fleet of one pool twice", fleet + config + "LaunchTemplateName=general" + override + "1.InstanceType=m5.large" + override + "1.SubnetId=$subnet" +
				override + "2.InstanceType=m5.large" + override + "2.AvailabilityZone=us-east-1a", "InvalidFleetConfig",
			"The fleet configuration contains duplicate instance pools.",
		},
		{
			"fleet that replaces", fleet + config + "LaunchTemplateName=general&ReplaceUnhealthyInstances=true", "UnsupportedOperation",
			"ReplaceUnhealthyInstances",
		},
		{
			"fleet that hibernates", fleet + config + "LaunchTemplateName=general&SpotOptions.InstanceInterruptionBehavior=hibernate",
			"UnsupportedOperation", "hibernate",
		},
		{
			"strategy", fleet + config + "LaunchTemplateName=general&SpotOptions.AllocationStrategy=luck", "InvalidParameterValue",
			"SpotOptions.AllocationStrategy",
		},
		{"fleet type", strings.Replace(fleet, "instant", "eventual", 1) + config + "LaunchTemplateName=general", "InvalidParameterValue", "Type"},
		{
			"fleet of nothing", strings.Replace(fleet, "Capacity=1", "Capacity=0", 1) + config + "LaunchTemplateName=general",
			"InvalidParameterValue", "TotalTargetCapacity",
		},
		{
			"dry run of a fleet",
			fleet + config + "LaunchTemplateName=general&LaunchTemplateConfigs.1.Overrides.1.InstanceType=m5.large&DryRun=true", "DryRunOperation",
			"",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := a.post(t, names.Replace(c.parameters), "test")
			if got.Code != c.code || !strings.Contains(got.Message, c.text) || got.Status < 400 || got.ID == "" {
				t.Errorf("got %d %s %q (request %q)\nwant %s %q", got.Status, got.Code, got.Message, got.ID, c.code, c.text)
			}
			if n := len(a.Sim.Instances()); n != 0 {
				t.Errorf("%d instances after a refusal", n)
			}
			calls := a.Sim.Calls()
			if last := calls[len(calls)-1]; last.ErrorCode != c.code || last.ID != got.ID {
				t.Errorf("logged call %s: %s", last.ID, last.ErrorCode)
			}
		})
	}
}

// TestStatusOfErrors: SDKs decide by the HTTP status what to try again.
func TestStatusOfErrors(t *testing.T) {
	a := open(t)
	a.Sim.SetCapacity(awsim.Pool{InstanceType: "m5.large", Zone: "us-east-1a", Lifecycle: "on-demand"}, 0)
	run := "Action=RunInstances&MinCount=1&MaxCount=1&InstanceType=m5.large&ImageId=" + a.x86 + "&SubnetId=" + a.subnets[0]
	for _, c := range []struct {
		name, parameters, key, code string
		status                      int
	}{
		{"caller's mistake", "Action=DescribeVpcs&VpcId.1=vpc-1", "test", "InvalidVpcId.Malformed", 400},
		{"dry run", "Action=DescribeVpcs&DryRun=true", "test", "DryRunOperation", 412},
		{"unknown key", "Action=DescribeVpcs", "AKIAIOSFODNN7EXAMPLE", "AuthFailure", 401},
		{"no capacity", run, "test", "InsufficientInstanceCapacity", 500},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := a.post(t, c.parameters, c.key); got.Code != c.code || got.Status != c.status {
				t.Errorf("got %d %s, want %d %s", got.Status, got.Code, c.status, c.code)
			}
		})
	}
}
