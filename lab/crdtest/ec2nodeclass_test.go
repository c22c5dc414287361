package crdtest

import "strings"

func ec2NodeClass() kind {
	const (
		subnets   = "spec.subnetSelectorTerms"
		groups    = "spec.securityGroupSelectorTerms"
		capacity  = "spec.capacityReservationSelectorTerms"
		images    = "spec.amiSelectorTerms"
		devices   = "spec.blockDeviceMappings"
		ebs       = devices + "[0].ebs"
		nics      = "spec.networkInterfaces"
		metadata  = "spec.metadataOptions"
		reserved  = "status.capacityReservations[0]"
		tracking  = "spec.connectionTracking"
		byTags    = "{spec: {amiFamily: Custom, amiSelectorTerms: [{tags: {a: b}}]}}"
		byID      = "{spec: {amiFamily: Custom, amiSelectorTerms: [{id: ami-1}]}}"
		firstCard = "{networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}"
	)
	return kind{
		resource: "ec2nodeclasses", crd: "karpenter.k8s.aws_ec2nodeclasses.yaml",
		minimal: `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: minimal}
spec:
  role: nodes
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{id: subnet-1}]
  securityGroupSelectorTerms: [{id: sg-1}]
`,
		defaulted: `
spec:
  role: nodes
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{id: subnet-1}]
  securityGroupSelectorTerms: [{id: sg-1}]
  metadataOptions: {httpEndpoint: enabled, httpProtocolIPv6: disabled, httpPutResponseHopLimit: 1, httpTokens: required}
`,
		full: `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: full}
spec:
  role: nodes
  amiSelectorTerms: [{alias: al2023@latest}]
  amiFamily: AL2023
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
  capacityReservationSelectorTerms: [{tags: {a: b}, ownerID: "111122223333", instanceMatchCriteria: open}]
  placementGroupSelector: {name: a}
  associatePublicIPAddress: false
  ipPrefixCount: 1
  userData: a
  tags: {a: b}
  kubelet: {maxPods: "vcpus * 10", clusterDNS: [10.0.0.10], topologyManagerPolicy: best-effort}
  blockDeviceMappings:
    - deviceName: /dev/xvda
      rootVolume: true
      ebs: {volumeSize: 20Gi, volumeType: gp3, iops: 3000, throughput: 125, encrypted: true, deleteOnTermination: true, kmsKeyID: a, snapshotID: snap-1, volumeInitializationRate: 200}
  instanceStorePolicy: RAID0
  networkInterfaces: [{networkCardIndex: 0, deviceIndex: 0, interfaceType: interface}]
  detailedMonitoring: true
  metadataOptions: {httpEndpoint: enabled, httpProtocolIPv6: disabled, httpPutResponseHopLimit: 2, httpTokens: optional}
  connectionTracking: {tcpEstablishedTimeout: 900, udpStreamTimeout: 60, udpTimeout: 30}
  context: a
  cpuOptions: {nestedVirtualization: enabled}
  enclaveOptions: {enabled: true}
status:
  subnets: [{id: subnet-1, zone: a, zoneID: b}]
  securityGroups: [{id: sg-1, name: a}]
  amis: [{id: ami-1, name: a, deprecated: true, requirements: [{key: a, operator: In, values: [b]}]}]
  capacityReservations: [{id: cr-1, ownerID: "111122223333", availabilityZone: a, instanceType: b, instanceMatchCriteria: open, reservationType: default, interruptible: true, endTime: "2026-01-02T03:04:05Z", state: active}]
  instanceProfile: a
  conditions: [{type: A, status: "True", reason: B, message: "", lastTransitionTime: "2026-01-02T03:04:05Z", observedGeneration: 1}]
`,
		examples: join(
			required(subnets, groups, images, "spec.enclaveOptions.enabled"),
			families(),
			[]ruleExample{
				{rule: "A_ROLE", field: "spec", accept: "{role: null, instanceProfile: a}", reject: "{instanceProfile: a}", messageNames: "role"},
				{rule: "A_ROLE", field: "spec", accept: "{role: a}", reject: "{role: null}", messageNames: "instanceProfile"},
				{
					rule:         "A_FAMREQ",
					field:        "spec",
					given:        byTags,
					accept:       "{amiFamily: Bottlerocket}",
					reject:       "{amiFamily: null}",
					messageNames: "amiFamily",
				},
				{rule: "R_NONEMPTY", field: "spec.role", accept: "path/to/role", reject: `""`},
				{rule: "R_NONEMPTY", field: "spec.instanceProfile", given: "{spec: {role: null}}", accept: "a", reject: `""`},

				{rule: "A_SUB_1", field: subnets, accept: "[{id: subnet-1}]", reject: "[]"},
				{rule: "A_SUB_2", field: subnets, accept: "[{tags: {a: b}}, {id: subnet-1}]", reject: "[{id: subnet-1}, {}]"},
				{rule: "A_SUB_3", field: subnets, accept: "[{id: subnet-1}, {tags: {a: b}}]", reject: "[{id: subnet-1, tags: {a: b}}]"},
				{
					rule:   "A_SUB_3",
					field:  subnets,
					accept: "[{id: subnet-1, tags: {a: b}}, {id: subnet-2}]",
					reject: "[{id: subnet-1, tags: {a: b}}, {id: subnet-2, tags: {a: b}}]",
				},
				{rule: "maxItems", field: subnets, accept: list(30, "{id: subnet-%d}"), reject: list(31, "{id: subnet-%d}")},
				{rule: "A_TAGSEL", field: subnets + "[0].tags", accept: "{a: '*'}", reject: "{a: ''}"},
				{rule: "A_TAGSEL", field: subnets + "[0].tags", accept: "{c: d}", reject: "{'': a}"},
				{rule: "maxProperties", field: subnets + "[0].tags", accept: object(19), reject: object(20)},
				{
					rule:   "P_SUBNET",
					field:  subnets + "[0].id",
					given:  "{spec: {subnetSelectorTerms: [{id: subnet-2}]}}",
					accept: "subnet-0aa11",
					reject: "sg-1",
				},

				{rule: "A_SG_1", field: groups, accept: "[{name: a}]", reject: "[]"},
				{rule: "A_SG_2", field: groups, accept: "[{tags: {a: b}}, {name: a}]", reject: "[{}]"},
				{rule: "A_SG_3", field: groups, accept: "[{id: sg-1}, {name: a}]", reject: "[{id: sg-1, name: a}]"},
				{rule: "A_SG_3", field: groups, accept: "[{id: sg-1}]", reject: "[{id: sg-1, tags: {a: b}}]"},
				{rule: "A_SG_4", field: groups, accept: "[{name: a}]", reject: "[{name: a, tags: {a: b}}]"},
				{rule: "maxItems", field: groups, accept: list(30, "{id: sg-%d}"), reject: list(31, "{id: sg-%d}")},
				{rule: "A_TAGSEL", field: groups + "[0].tags", accept: "{a: '*'}", reject: "{a: ''}"},
				{rule: "maxProperties", field: groups + "[0].tags", accept: object(19), reject: object(20)},
				{
					rule:   "P_SG",
					field:  groups + "[0].id",
					given:  "{spec: {securityGroupSelectorTerms: [{id: sg-2}]}}",
					accept: "sg-0aa11",
					reject: "subnet-1",
				},

				{rule: "A_CR_1", field: capacity, accept: "[{instanceMatchCriteria: targeted}]", reject: "[{ownerID: '111122223333'}]"},
				{rule: "A_CR_2", field: capacity, accept: "[{id: cr-1}]", reject: "[{id: cr-1, ownerID: '111122223333'}]"},
				{rule: "maxItems", field: capacity, accept: list(30, "{id: cr-%d}"), reject: list(31, "{id: cr-%d}")},
				{rule: "A_TAGSEL", field: capacity + "[0].tags", accept: "{a: '*'}", reject: "{a: ''}"},
				{rule: "maxProperties", field: capacity + "[0].tags", accept: object(19), reject: object(20)},
				{
					rule:   "P_CR",
					field:  capacity + "[0].id",
					given:  "{spec: {capacityReservationSelectorTerms: [{id: cr-2}]}}",
					accept: "cr-0abcd",
					reject: "cr-0ABCD",
				},
				{rule: "P_ACCT", field: capacity + "[0].ownerID", accept: "'444455556666'", reject: "self"},
				{rule: "enum", field: capacity + "[0].instanceMatchCriteria", accept: "targeted", reject: "closed"},

				{rule: "A_PG_1", field: "spec.placementGroupSelector", accept: "{name: a}", reject: "{name: null}", messageNames: "id"},
				{
					rule:         "A_PG_2",
					field:        "spec.placementGroupSelector",
					accept:       "{name: null, id: pg-1}",
					reject:       "{id: pg-1}",
					messageNames: "name",
				},
				{rule: "minLength", field: "spec.placementGroupSelector.name", accept: "a", reject: `""`},
				{
					rule:   "P_PG",
					field:  "spec.placementGroupSelector.id",
					given:  "{spec: {placementGroupSelector: {name: null}}}",
					accept: "pg-0a1b2c",
					reject: "group",
				},

				{rule: "minItems", field: images, accept: "[{alias: al2023@latest}]", reject: "[]"},
				{rule: "maxItems", field: images, given: byTags, accept: list(30, "{id: ami-%d}"), reject: list(31, "{id: ami-%d}")},
				{rule: "A_AMI_1", field: images, given: byTags, accept: "[{ssmParameter: /a}, {name: a}]", reject: "[{owner: self}]"},
				{
					rule:   "A_AMI_2",
					field:  images,
					given:  byTags,
					accept: "[{id: ami-1}, {name: a, owner: self}]",
					reject: "[{id: ami-1}, {id: ami-2, name: a}]",
				},
				{rule: "A_AMI_2", field: images, given: byTags, accept: "[{id: ami-1}]", reject: "[{id: ami-2, owner: self}]"},
				{rule: "A_AMI_3", field: images, accept: "[{alias: al2023@v20260601}]", reject: "[{alias: al2023@latest, tags: {a: b}}]"},
				{rule: "A_AMI_3", field: images, accept: "[{alias: al2023@v20260601}]", reject: "[{alias: al2023@latest, owner: amazon}]"},
				{rule: "A_AMI_4", field: images, accept: "[{alias: al2023@latest}]", reject: "[{alias: al2023@latest}, {id: ami-1}]"},
				{
					rule:   "maxLength",
					field:  images + "[0].alias",
					accept: `"al2023@vaaaaaaaaaaaaaaaaaaaaaa"`,
					reject: `"al2023@vaaaaaaaaaaaaaaaaaaaaaaa"`,
				},
				{rule: "A_ALIAS_1", field: images + "[0].alias", accept: "al2023@v1", reject: "al2023"},
				{rule: "A_ALIAS_2", field: images + "[0].alias", accept: "al2023@latest", reject: "ubuntu@latest"},
				{
					rule:   "A_ALIAS_3",
					field:  images + "[0].alias",
					given:  "{spec: {amiFamily: null}}",
					accept: "windows2022@latest",
					reject: "windows2022@v1",
				},
				{rule: "A_TAGSEL", field: images + "[0].tags", given: byTags, accept: "{a: '*'}", reject: "{a: ''}"},
				{rule: "maxProperties", field: images + "[0].tags", given: byTags, accept: object(19), reject: object(20)},
				{rule: "P_AMI", field: images + "[0].id", given: byID, accept: "ami-0a1b", reject: "image-1"},
				{rule: "enum", field: "spec.amiFamily", given: byTags, accept: "Windows2025", reject: "Ubuntu"},

				{rule: "A_TAGS_1", field: "spec.tags", accept: "{c: ''}", reject: "{'': d}"},
				{rule: "A_TAGS_2", field: "spec.tags", accept: "{eks:cluster: a}", reject: "{eks:eks-cluster-name: a}"},
				{rule: "A_TAGS_3", field: "spec.tags", accept: "{kubernetes.io/role: a}", reject: "{kubernetes.io/cluster/a: owned}"},
				{rule: "A_TAGS_4", field: "spec.tags", accept: "{example.com/nodepool: a}", reject: "{karpenter.sh/nodepool: a}"},
				{rule: "A_TAGS_5", field: "spec.tags", accept: "{example.com/nodeclaim: a}", reject: "{karpenter.sh/nodeclaim: a}"},
				{rule: "A_TAGS_6", field: "spec.tags", accept: "{example.com/ec2nodeclass: a}", reject: "{karpenter.k8s.aws/ec2nodeclass: a}"},

				{
					rule:   "A_KUBELET_GC",
					field:  "spec.kubelet",
					accept: "{imageGCHighThresholdPercent: 85, imageGCLowThresholdPercent: 80}",
					reject: "{imageGCHighThresholdPercent: 80, imageGCLowThresholdPercent: 80}",
				},
				{
					rule:   "A_KUBELET_GC",
					field:  "spec.kubelet",
					accept: "{imageGCLowThresholdPercent: 90}",
					reject: "{imageGCHighThresholdPercent: 10, imageGCLowThresholdPercent: 90}",
				},
				{rule: "min", field: "spec.kubelet.imageGCHighThresholdPercent", accept: "0", reject: "-1"},
				{rule: "max", field: "spec.kubelet.imageGCHighThresholdPercent", accept: "100", reject: "101"},
				{rule: "min", field: "spec.kubelet.imageGCLowThresholdPercent", accept: "0", reject: "-1"},
				{rule: "max", field: "spec.kubelet.imageGCLowThresholdPercent", accept: "100", reject: "101"},

				{rule: "maxItems", field: devices, accept: list(50, "{deviceName: a}"), reject: list(51, "{deviceName: a}")},
				{
					rule:   "A_BDM",
					field:  devices,
					accept: "[{rootVolume: true}, {rootVolume: false}]",
					reject: "[{rootVolume: true}, {rootVolume: true}]",
				},
				{
					rule:         "A_EBS_1",
					field:        ebs,
					accept:       "{volumeSize: 1Ti}",
					reject:       "{volumeSize: null, snapshotID: null, volumeInitializationRate: null}",
					messageNames: "volumeSize",
				},
				{
					rule:         "A_EBS_2",
					field:        ebs,
					accept:       "{volumeInitializationRate: 100}",
					reject:       "{snapshotID: null}",
					messageNames: "volumeInitializationRate",
				},
				{
					rule:         "A_EBS_2",
					field:        ebs,
					accept:       "{snapshotID: null, volumeInitializationRate: null}",
					reject:       "{snapshotID: ''}",
					messageNames: "snapshotID",
				},
				{rule: "P_VOLSIZE", field: ebs + ".volumeSize", accept: "59000Gi", reject: "59001Gi"},
				{rule: "P_VOLSIZE", field: ebs + ".volumeSize", accept: "64T", reject: "65T"},
				{rule: "P_VOLSIZE", field: ebs + ".volumeSize", accept: "1G", reject: "100Mi"},
				{rule: "enum", field: ebs + ".volumeType", accept: "io2", reject: "gp4"},
				{rule: "min", field: ebs + ".volumeInitializationRate", accept: "100", reject: "99"},
				{rule: "max", field: ebs + ".volumeInitializationRate", accept: "300", reject: "301"},
				{rule: "enum", field: "spec.instanceStorePolicy", accept: "RAID0", reject: "RAID1"},

				{rule: "maxItems", field: nics, accept: cards(150), reject: cards(151)},
				{rule: "A_NIC_1", field: nics, accept: "[]", reject: "[{networkCardIndex: 1, deviceIndex: 0, interfaceType: interface}]"},
				{
					rule:   "A_NIC_2",
					field:  nics,
					accept: "[" + firstCard + ", {networkCardIndex: 0, deviceIndex: 1, interfaceType: efa-only}]",
					reject: "[" + firstCard + ", " + firstCard + "]",
				},
				{
					rule:   "A_NIC_2",
					field:  nics,
					accept: "[" + firstCard + ", {networkCardIndex: 1, deviceIndex: 0, interfaceType: efa-only}]",
					reject: "[" + firstCard + ", {networkCardIndex: 1, deviceIndex: 0, interfaceType: efa-only}, {networkCardIndex: 1, deviceIndex: 1, interfaceType: efa-only}]",
				},
				{rule: "min", field: nics + "[0].networkCardIndex", accept: "0", reject: "-1"},
				{rule: "min", field: nics + "[0].deviceIndex", accept: "0", reject: "-1"},
				{rule: "enum", field: nics + "[0].interfaceType", accept: "interface", reject: "efa"},
				{rule: "min", field: "spec.ipPrefixCount", accept: "0", reject: "-1"},

				{rule: "enum", field: metadata + ".httpEndpoint", accept: "disabled", reject: "off"},
				{rule: "enum", field: metadata + ".httpProtocolIPv6", accept: "enabled", reject: "required"},
				{rule: "enum", field: metadata + ".httpTokens", accept: "required", reject: "enabled"},
				{rule: "min", field: metadata + ".httpPutResponseHopLimit", accept: "1", reject: "0"},
				{rule: "max", field: metadata + ".httpPutResponseHopLimit", accept: "64", reject: "65"},

				{
					rule:   "A_CT",
					field:  tracking,
					accept: "{udpTimeout: 60}",
					reject: "{tcpEstablishedTimeout: null, udpStreamTimeout: null, udpTimeout: null}",
				},
				{rule: "min", field: tracking + ".tcpEstablishedTimeout", accept: "60", reject: "59"},
				{rule: "max", field: tracking + ".tcpEstablishedTimeout", accept: "432000", reject: "432001"},
				{rule: "min", field: tracking + ".udpStreamTimeout", accept: "60", reject: "59"},
				{rule: "max", field: tracking + ".udpStreamTimeout", accept: "180", reject: "181"},
				{rule: "min", field: tracking + ".udpTimeout", accept: "30", reject: "29"},
				{rule: "max", field: tracking + ".udpTimeout", accept: "60", reject: "61"},
				{rule: "enum", field: "spec.cpuOptions.nestedVirtualization", accept: "disabled", reject: "yes please"},

				{rule: "P_CR", field: reserved + ".id", accept: "cr-2", reject: "reservation-2"},
				{rule: "P_ACCT", field: reserved + ".ownerID", accept: "'444455556666'", reject: "self"},
				{rule: "enum", field: reserved + ".instanceMatchCriteria", accept: "targeted", reject: "closed"},
				{rule: "enum", field: reserved + ".reservationType", accept: "capacity-block", reject: "block"},
				{rule: "enum", field: reserved + ".state", accept: "expiring", reject: "expired"},
				{rule: "date", field: reserved + ".endTime", accept: `"2026-01-02T03:04:05Z"`, reject: "tomorrow"},
			},
			required(
				nics+"[0].networkCardIndex", nics+"[0].deviceIndex", nics+"[0].interfaceType",
				"status.subnets[0].id", "status.subnets[0].zone", "status.securityGroups[0].id",
				"status.amis[0].id", "status.amis[0].requirements",
				"status.amis[0].requirements[0].key", "status.amis[0].requirements[0].operator",
				reserved+".availabilityZone", reserved+".instanceType", reserved+".id", reserved+".ownerID", reserved+".instanceMatchCriteria",
			),
			conditions(), reasons(),
		),
	}
}

// families pair each alias with its family.
func families() (rows []ruleExample) {
	for _, family := range []string{"AL2", "AL2023", "Bottlerocket", "Windows2019", "Windows2022", "Windows2025"} {
		other := "Bottlerocket"
		if family == other {
			other = "AL2023"
		}
		given := "{spec: {amiSelectorTerms: [{alias: " + strings.ToLower(family) + "@latest}]}}"
		rows = append(
			rows,
			ruleExample{
				rule:         "A_FAM_" + family,
				field:        "spec",
				given:        given,
				accept:       "{amiFamily: " + family + "}",
				reject:       "{amiFamily: " + other + "}",
				messageNames: "amiFamily",
			},
			ruleExample{
				rule:         "A_FAM_" + family,
				field:        "spec",
				given:        given,
				accept:       "{amiFamily: Custom}",
				reject:       "{amiFamily: " + other + "}",
				messageNames: "amiFamily",
			},
		)
	}
	return rows
}

// cards is a valid layout of n interfaces.
func cards(n int) string {
	return list(n, "{networkCardIndex: %d, deviceIndex: 0, interfaceType: interface}")
}
