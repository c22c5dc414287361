package ec2

import (
	"slices"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

// attributeValue is an attribute that a call sets; absent ones stay as they are.
type attributeValue struct {
	Value bool `query:"Value,required"`
}

type modifySubnetInput struct {
	ID          string          `query:"SubnetId,required"`
	MapPublicIP *attributeValue `query:"MapPublicIpOnLaunch"`
	AssignIPv6  *attributeValue `query:"AssignIpv6AddressOnCreation"`
	// HostnameType is how instances are named.
	HostnameType string `query:"PrivateDnsHostnameTypeOnLaunch"`

	CustomerOwned     *unsupported `query:"MapCustomerOwnedIpOnLaunch,unsupported"`
	CustomerPool      *unsupported `query:"CustomerOwnedIpv4Pool,unsupported"`
	DNS64             *unsupported `query:"EnableDns64,unsupported"`
	RecordA           *unsupported `query:"EnableResourceNameDnsARecordOnLaunch,unsupported"`
	RecordAAAA        *unsupported `query:"EnableResourceNameDnsAAAARecordOnLaunch,unsupported"`
	LocalDeviceIndex  *unsupported `query:"EnableLniAtDeviceIndex,unsupported"`
	DisableLocalIndex *unsupported `query:"DisableLniAtDeviceIndex,unsupported"`
}

// changed is the answer of calls that only state that they have worked.
type changed struct {
	Return bool `xml:"return"`
}

// modifySubnetAttribute changes what network interfaces get that are created in a subnet from now on.
func (e *EC2) modifySubnetAttribute(r *protocol.Request, in *modifySubnetInput) (*changed, error) {
	given := 0
	for _, is := range []bool{in.MapPublicIP != nil, in.AssignIPv6 != nil, in.HostnameType != ""} {
		if is {
			given++
		}
	}
	switch {
	case given == 0:
		return nil, protocol.Errorf("InvalidRequest", "The request received was invalid")
	case given > 1:
		return nil, combination("Only one subnet attribute can be modified at a time")
	}
	if err := oneOf("PrivateDnsHostnameTypeOnLaunch", in.HostnameType, ipName, resourceName); err != nil {
		return nil, err
	}
	if err := subnetIDs().check(in.ID); err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	at := slices.IndexFunc(e.network.subnets, func(s *Subnet) bool { return s.ID == in.ID })
	if at < 0 {
		return nil, subnetIDs().absent(in.ID)
	}
	s := *e.network.subnets[at]
	if err := r.Authorize(e.on("subnet", s.ID, s.Tags, "ec2:SubnetID", s.ID, "ec2:AvailabilityZone", s.Zone)); err != nil {
		return nil, err
	}
	switch {
	case in.MapPublicIP != nil:
		s.MapPublicIP = in.MapPublicIP.Value
	case in.HostnameType != "":
		s.HostnameType = in.HostnameType
	case in.AssignIPv6.Value && !s.IPv6CIDR.IsValid():
		return nil, invalidValue("Invalid value 'true' for assignIpv6AddressOnCreation. The subnet %s has no IPv6 CIDR block", s.ID)
	default:
		s.AssignIPv6 = in.AssignIPv6.Value
	}
	e.network.subnets[at] = &s
	r.Touch(s.ID)
	return &changed{Return: true}, nil
}
