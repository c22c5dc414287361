package ec2

import "github.com/dovetail-k8s/dovetail/lab/awsim/protocol"

func (n *network) resolveInterfaces(o *launchPlan, q launchRequest) error {
	if len(q.data.Interfaces) == 0 {
		nic := plannedInterface{kind: "interface", groups: o.groups, public: o.subnet.MapPublicIP}
		err := planIPv6(&nic, o, interfaceSpec{})
		o.nics = []plannedInterface{nic}
		return err
	}
	if limit := interfaceLimit(o.instanceType.Type); len(q.data.Interfaces) > limit {
		return protocol.Errorf(
			"AttachmentLimitExceeded",
			"Interface count %d exceeds the limit for %s",
			len(q.data.Interfaces),
			o.instanceType.Name,
		)
	}
	efas := 0
	for i, spec := range q.data.Interfaces {
		nic, err := n.planInterface(o, spec)
		if err != nil {
			return err
		}
		if err := o.planAddress(i, spec); err != nil {
			return err
		}
		if nic.kind != "interface" {
			efas++
		}
		o.nics = append(o.nics, nic)
	}
	if efas > o.instanceType.EFAMax {
		return protocol.Errorf(
			"AttachmentLimitExceeded",
			"%s supports %d EFA interfaces, %d were requested",
			o.instanceType.Name,
			o.instanceType.EFAMax,
			efas,
		)
	}
	o.groups = o.nics[0].groups
	return nil
}

func (n *network) planInterface(o *launchPlan, spec interfaceSpec) (plannedInterface, error) {
	nic := plannedInterface{device: *spec.DeviceIndex, kind: "interface", description: spec.Description}
	if spec.Type != "" {
		nic.kind = spec.Type
	}
	if spec.CardIndex != nil {
		nic.card = *spec.CardIndex
	}
	if nic.card < 0 || nic.card >= len(o.instanceType.NetworkCards) {
		return nic, invalidValue("The network card index %d is invalid for %s", nic.card, o.instanceType.Name)
	}
	if spec.SubnetID != "" && spec.SubnetID != o.subnet.ID {
		return nic, combination("A launch template's network interface names the subnet %s, the request %s", spec.SubnetID, o.subnet.ID)
	}
	var err error
	if nic.groups, err = n.groupsIn(o.subnet, spec.Groups); err != nil {
		return nic, err
	}
	if err := planIPv6(&nic, o, spec); err != nil {
		return nic, err
	}
	// The interfaces of EFA have the index 1 on all cards but the first, also where a card has but one.
	if further := nic.card > 0 && nic.device == 1; nic.device < 0 ||
		nic.device >= o.instanceType.NetworkCards[nic.card].MaxENIs && !further {
		return nic, invalidValue("The device index %d is invalid for network card %d of %s", nic.device, nic.card, o.instanceType.Name)
	}
	if spec.IPv4Prefixes != nil {
		nic.prefixes = *spec.IPv4Prefixes
	}
	if spec.SecondaryIPs != nil {
		nic.secondaries = *spec.SecondaryIPs
	}
	if nic.prefixes < 0 || nic.secondaries < 0 || 1+nic.prefixes+nic.secondaries > o.instanceType.IPv4PerENI {
		return nic, protocol.Errorf("PrivateIpAddressLimitExceeded", "Number of private addresses will exceed limit.")
	}
	nic.public = o.subnet.MapPublicIP && nic.device == 0
	if spec.PublicIP != nil {
		nic.public = *spec.PublicIP
		if nic.public && len(o.data.Interfaces) > 1 {
			return nic, combination(
				"The associatePublicIPAddress parameter cannot be specified when launching with multiple network interfaces.",
			)
		}
	}
	nic.tracking = spec.Tracking
	nic.keep = spec.DeleteOnTermination != nil && !*spec.DeleteOnTermination
	return nic, nil
}

// planAddress takes the address that the nth interface requests.
func (o *launchPlan) planAddress(n int, spec interfaceSpec) (err error) {
	switch {
	case spec.PrivateIP == "":
		return nil
	case n > 0:
		return protocol.Errorf("UnsupportedOperation", "The simulator assigns requested addresses to the first network interface only")
	case o.privateIP.IsValid():
		return combination("The private IP address may not be specified both for the instance and for its network interface")
	}
	o.privateIP, err = o.subnet.address(spec.PrivateIP)
	return err
}

// planIPv6 plans the addresses of that family.
func planIPv6(nic *plannedInterface, o *launchPlan, spec interfaceSpec) error {
	if spec.IPv6Prefixes != nil {
		nic.prefixes6 = *spec.IPv6Prefixes
	}
	nic.primary6 = spec.PrimaryIPv6 != nil && *spec.PrimaryIPv6
	switch {
	case spec.IPv6Addresses != nil:
		nic.ipv6 = *spec.IPv6Addresses
	case o.subnet.AssignIPv6 && nic.prefixes6 == 0 && nic.kind != "efa-only":
		nic.ipv6 = 1
	}
	switch {
	case nic.ipv6 < 0 || nic.prefixes6 < 0 || nic.ipv6+nic.prefixes6 > o.instanceType.IPv6PerENI:
		return protocol.Errorf("PrivateIpAddressLimitExceeded", "Number of IPv6 addresses will exceed limit.")
	case nic.ipv6+nic.prefixes6 > 0 && !o.subnet.IPv6CIDR.IsValid():
		return invalidValue("The subnet '%s' does not have an IPv6 CIDR block associated with it", o.subnet.ID)
	case nic.primary6 && nic.ipv6 == 0:
		return combination("A primary IPv6 address needs an IPv6 address")
	}
	return nil
}
