package ec2

import (
	"strconv"

	"github.com/dovetail-k8s/dovetail/lab/awsim/protocol"
)

func interfaceIDs() idRules {
	return idRules{
		prefix: "eni", malformed: "InvalidNetworkInterfaceId.Malformed", notFound: "InvalidNetworkInterfaceID.NotFound",
		missing: does("networkInterface"),
	}
}

// attachedNIC is a network interface with the instance that has it.
type attachedNIC struct {
	nic
	instance *instanceRecord
}

type describeInterfacesInput struct {
	listInput
	IDs            []string `query:"NetworkInterfaceId"`
	IncludeManaged bool     `query:"IncludeManagedResources"`
}

type describeInterfacesOutput struct {
	Interfaces []nicInfo `xml:"networkInterfaceSet>item"`
	Next       *string   `xml:"nextToken"`
}

// nicInfo is a network interface as DescribeNetworkInterfaces shows it: with its instance, which DescribeInstances
// has no need to repeat.
type nicInfo struct {
	attachedInterface
	Zone       string        `xml:"availabilityZone"`
	ZoneID     string        `xml:"availabilityZoneId"`
	Tags       []tag         `xml:"tagSet>item"`
	Attachment nicAttachedTo `xml:"attachment"`
}

type nicAttachedTo struct {
	nicAttachment
	Instance string `xml:"instanceId"`
	Owner    string `xml:"instanceOwnerId"`
}

func (e *EC2) describeNetworkInterfaces(_ *protocol.Request, in *describeInterfacesInput) (*describeInterfacesOutput, error) {
	var all []attachedNIC
	for _, r := range e.visible() {
		if r.State == Terminated {
			continue
		}
		for _, n := range r.nics {
			all = append(all, attachedNIC{n, r})
		}
	}
	text := func(get func(attachedNIC) string) func(attachedNIC) []string { return one(get) }
	n := resourceKind[attachedNIC]{
		id: func(a attachedNIC) string { return a.id }, tags: func(a attachedNIC) map[string]string { return a.tags },
		ids: interfaceIDs(), minResults: 5, maxResults: 1000, idsExcludePages: true,
		properties: properties[attachedNIC]{
			"addresses.private-ip-address": text(func(a attachedNIC) string { return ipText(a.ip) }),
			"attachment.device-index":      text(func(a attachedNIC) string { return strconv.Itoa(a.device) }),
			"attachment.instance-id":       text(func(a attachedNIC) string { return a.instance.ID }),
			"attachment.status":            text(func(attachedNIC) string { return "attached" }),
			"availability-zone":            text(func(a attachedNIC) string { return a.instance.Zone }),
			"description":                  text(func(a attachedNIC) string { return a.description }),
			"group-id": func(a attachedNIC) (ids []string) {
				for _, g := range a.groups {
					ids = append(ids, g.ID)
				}
				return ids
			},
			"interface-type":       text(func(a attachedNIC) string { return a.kind }),
			"network-interface-id": text(func(a attachedNIC) string { return a.id }),
			"owner-id":             text(func(attachedNIC) string { return e.cfg.AccountID }),
			"private-dns-name":     text(func(a attachedNIC) string { return a.instance.PrivateDNSName }),
			"private-ip-address":   text(func(a attachedNIC) string { return ipText(a.ip) }),
			"status":               text(func(attachedNIC) string { return "in-use" }),
			"subnet-id":            text(func(a attachedNIC) string { return a.instance.SubnetID }),
			"vpc-id":               text(func(a attachedNIC) string { return a.instance.VPCID }),
		},
	}
	p, err := n.list(in.listInput, in.IDs, all)
	if err != nil {
		return nil, err
	}
	out := &describeInterfacesOutput{Next: p.next}
	for _, a := range p.items {
		info := nicInfo{
			attachedInterface: e.cfg.showNIC(a.instance, a.nic), Zone: a.instance.Zone, ZoneID: a.instance.ZoneID, Tags: tagList(a.tags),
		}
		info.Attachment = nicAttachedTo{info.attachedInterface.Attachment, a.instance.ID, e.cfg.AccountID}
		out.Interfaces = append(out.Interfaces, info)
	}
	return out, nil
}
