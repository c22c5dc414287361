package join

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/dovetail-k8s/dovetail/internal/cloudprovider"
)

func dataOf(t *testing.T, manifest string) map[string]string {
	t.Helper()
	var m corev1.ConfigMap
	if err := yaml.UnmarshalStrict([]byte(manifest), &m); err != nil {
		t.Fatal(err)
	}
	return m.Data
}

// openNetwork is a network without obstacles.
func openNetwork() Network {
	all := []Permission{{Protocol: "-1", FromPort: -1, ToPort: -1, CIDRs: []string{"0.0.0.0/0"}}}
	local, nat := Route{Destination: "10.0.0.0/16", Target: "local"}, Route{Destination: "0.0.0.0/0", Target: "nat-1"}
	return Network{
		Cluster: Cluster{
			Name:   "shop",
			Region: "eu-west-1",
		}, VPC: "vpc-1", PrivateAccess: true, Public: true, PublicCIDRs: []string{"0.0.0.0/0"},
		Subnets: []Subnet{
			{ID: "subnet-a", VPC: "vpc-1", CIDR: "10.0.0.0/24", Routes: []Route{local, nat}},
			{ID: "subnet-b", VPC: "vpc-1", CIDR: "10.0.1.0/24", Routes: []Route{local, nat}},
		},
		Groups: []SecurityGroup{{ID: "sg-node", VPC: "vpc-1", Egress: all}},
		ClusterGroups: []SecurityGroup{
			{ID: "sg-cluster", VPC: "vpc-1", Ingress: []Permission{{Protocol: "tcp", FromPort: 443, ToPort: 443, Groups: []string{"sg-node"}}}},
		},
	}
}

func TestCheckNetwork(t *testing.T) {
	publicOnly := func(n *Network) { n.PrivateAccess = false }
	eachSubnet := func(change func(*Subnet)) func(*Network) {
		return func(n *Network) {
			for i := range n.Subnets {
				change(&n.Subnets[i])
			}
		}
	}
	tests := []struct {
		name            string
		changes         []func(*Network)
		cause           string
		certainty       cloudprovider.Certainty
		message, remedy string
	}{
		{name: "nothing in the way"},
		{name: "public endpoint only, behind NAT", changes: []func(*Network){publicOnly}},
		{name: "egress to 443 only", changes: []func(*Network){func(n *Network) {
			n.Groups[0].Egress = []Permission{{Protocol: "tcp", FromPort: 443, ToPort: 443, CIDRs: []string{"0.0.0.0/0"}}}
		}}},
		{name: "egress to a prefix list", changes: []func(*Network){func(n *Network) {
			n.Groups[0].Egress = []Permission{{Protocol: "6", FromPort: 0, ToPort: 65535, PrefixLists: []string{"pl-1"}}}
		}}},
		{name: "private endpoint, isolated subnets", changes: []func(*Network){eachSubnet(func(s *Subnet) { s.Routes = s.Routes[:1] })}},
		{name: "admitted by address", changes: []func(*Network){func(n *Network) {
			n.ClusterGroups[0].Ingress = []Permission{{Protocol: "-1", FromPort: -1, ToPort: -1, CIDRs: []string{"10.0.1.0/24"}}}
		}}},

		{
			name:    "no egress",
			changes: []func(*Network){func(n *Network) { n.Groups[0].Egress = nil }},
			cause:   NoEgress,
			message: "sg-node",
			remedy:  "authorize-security-group-egress --region eu-west-1 --group-id sg-node",
		},
		{name: "egress to 80 only", changes: []func(*Network){func(n *Network) {
			n.Groups[0].Egress = []Permission{{Protocol: "tcp", FromPort: 80, ToPort: 80, CIDRs: []string{"0.0.0.0/0"}}}
		}}, cause: NoEgress},
		{name: "egress by UDP only", changes: []func(*Network){func(n *Network) {
			n.Groups[0].Egress = []Permission{{Protocol: "udp", FromPort: 0, ToPort: 65535, CIDRs: []string{"0.0.0.0/0"}}}
		}}, cause: NoEgress},
		{name: "cluster admits others", changes: []func(*Network){func(n *Network) {
			n.ClusterGroups[0].Ingress = []Permission{
				{Protocol: "tcp", FromPort: 443, ToPort: 443, Groups: []string{"sg-other"}, CIDRs: []string{"10.9.0.0/16"}},
			}
		}}, cause: ClusterRejectsNodes, message: "sg-cluster", remedy: "--group-id sg-cluster --protocol tcp --port 443 --source-group sg-node"},
		{name: "cluster admits another port", changes: []func(*Network){func(n *Network) {
			n.ClusterGroups[0].Ingress[0].FromPort, n.ClusterGroups[0].Ingress[0].ToPort = 10250, 10250
		}}, cause: ClusterRejectsNodes},
		{
			name:    "cluster does not admit, but the public endpoint is used",
			changes: []func(*Network){publicOnly, func(n *Network) { n.ClusterGroups[0].Ingress = nil }},
		},
		{
			name:    "groups of another VPC",
			changes: []func(*Network){func(n *Network) { n.Groups[0].VPC = "vpc-2" }},
			cause:   GroupsOfOtherVPC,
			message: "vpc-2",
		},
		{
			name:    "public endpoint, no default route",
			changes: []func(*Network){publicOnly, eachSubnet(func(s *Subnet) { s.Routes = s.Routes[:1] })},
			cause:   SubnetWithoutRoute,
			message: "subnet-a",
			remedy:  "endpointPrivateAccess=true",
		},
		{
			name:      "public endpoint, one subnet without default route",
			changes:   []func(*Network){publicOnly, func(n *Network) { n.Subnets[1].Routes = nil }},
			cause:     SubnetWithoutRoute,
			certainty: cloudprovider.Likely,
			message:   "subnet-b",
		},
		{
			name: "public endpoint, route to a NAT gateway that is gone",
			changes: []func(*Network){
				publicOnly,
				eachSubnet(func(s *Subnet) { s.Routes = []Route{{Destination: "0.0.0.0/0", Target: "nat-9", Blackhole: true}} }),
			},
			cause:   SubnetWithoutRoute,
			message: "nat-9",
		},
		{
			name:    "public endpoint, internet gateway, no public address",
			changes: []func(*Network){publicOnly, eachSubnet(func(s *Subnet) { s.Routes[1].Target = "igw-1" })},
			cause:   SubnetWithoutPublicIP,
			remedy:  "associatePublicIPAddress: true",
		},
		{
			name:    "public endpoint, internet gateway, public address",
			changes: []func(*Network){publicOnly, eachSubnet(func(s *Subnet) { s.Routes[1].Target, s.PublicIP = "igw-1", true })},
		},
		{
			name:      "public endpoint for some addresses",
			changes:   []func(*Network){publicOnly, func(n *Network) { n.PublicCIDRs = []string{"192.0.2.0/24"} }},
			cause:     PublicAccessRestricted,
			certainty: cloudprovider.Likely,
			message:   "192.0.2.0/24",
		},
		{
			name: "private endpoint, subnets of another VPC without a way",
			changes: []func(*Network){
				func(n *Network) { n.Public = false },
				eachSubnet(func(s *Subnet) { s.VPC, s.Routes = "vpc-2", s.Routes[:1] }),
				func(n *Network) { n.Groups[0].VPC = "vpc-2" },
			},
			cause:   SubnetWithoutRoute,
			message: "private endpoint in vpc-1 only",
		},
		{
			name:      "EKS denies access",
			changes:   []func(*Network){func(n *Network) { n.ClusterErr = "AccessDenied" }},
			cause:     NetworkUnchecked,
			certainty: cloudprovider.Unchecked,
			message:   "AccessDenied",
		},
		{
			name: "routes may not be read",
			changes: []func(*Network){
				publicOnly,
				eachSubnet(func(s *Subnet) { s.Routes = nil }),
				func(n *Network) { n.SubnetsErr = "UnauthorizedOperation" },
			},
			cause:     NetworkUnchecked,
			certainty: cloudprovider.Unchecked,
			message:   "routes",
		},
		{
			name:      "security groups may not be read",
			changes:   []func(*Network){func(n *Network) { n.Groups, n.GroupsErr = nil, "UnauthorizedOperation" }},
			cause:     NetworkUnchecked,
			certainty: cloudprovider.Unchecked,
			message:   "security groups",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			n := openNetwork()
			for _, change := range tt.changes {
				change(&n)
			}
			checkFirst(t, CheckNetwork(n), tt.cause, tt.certainty, tt.message, tt.remedy)
		})
	}
}

func TestCheckBoot(t *testing.T) {
	const al2023, arm = "amazon-eks-node-al2023-x86_64-standard-1.33-v20260801", "amazon-eks-node-al2023-arm64-standard-1.33-v20260801"
	for _, tt := range []struct {
		name      string
		boot      BootConfig
		cause     string
		certainty cloudprovider.Certainty
		message   string
	}{
		{name: "as it should be", boot: BootConfig{Family: "AL2023", Images: []Image{{"ami-1", al2023}}}},
		{name: "an image of one's own", boot: BootConfig{Family: "AL2023", Images: []Image{{"ami-1", "golden-7"}}}},
		{name: "three minor versions older", boot: BootConfig{Family: "AL2", Images: []Image{{"ami-1", "amazon-eks-node-1.30-v20240703"}}}},
		{name: "custom family", boot: BootConfig{Family: "Custom", Images: []Image{{"ami-1", al2023}}}},
		{
			name: "image of another family", boot: BootConfig{Family: "Bottlerocket", Images: []Image{{"ami-1", al2023}}},
			cause: ImageFamilyMismatch, message: "AL2023",
		},
		{name: "image of another family for one architecture", boot: BootConfig{Family: "AL2023", Images: []Image{{
			"ami-1",
			"bottlerocket-aws-k8s-1.33-x86_64-v1.46.0-431fe75a",
		}, {"ami-2", arm}}}, cause: ImageFamilyMismatch, certainty: cloudprovider.Likely},
		{name: "kubelet four minor versions older", boot: BootConfig{Family: "AL2", Images: []Image{{
			"ami-1",
			"amazon-eks-node-1.29-v20240703",
		}}}, cause: KubeletTooOld, certainty: cloudprovider.Likely, message: "1.29"},
		{name: "kubelet newer than the API server", boot: BootConfig{Family: "AL2023", Images: []Image{{"ami-1", strings.Replace(al2023, "1.33",
			"1.34", 1)}}}, cause: KubeletTooNew, certainty: cloudprovider.Likely},
		{
			name: "script for Bottlerocket", boot: BootConfig{Family: "Bottlerocket", UserData: "#!/bin/bash\necho"}, cause: UserDataWrongFormat,
			certainty: cloudprovider.Likely, message: "TOML",
		},
		{name: "settings for Bottlerocket", boot: BootConfig{Family: "Bottlerocket", UserData: "[settings.kubernetes]\n"}},
		{
			name: "bootstrap.sh on AL2023", boot: BootConfig{Family: "AL2023", UserData: "#!/bin/bash\n/etc/eks/bootstrap.sh shop"},
			cause: UserDataWrongFormat, certainty: cloudprovider.Likely, message: "bootstrap.sh",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.boot.Cluster = Cluster{Name: "shop", Version: "1.33"}
			checkFirst(t, CheckBoot(tt.boot), tt.cause, tt.certainty, tt.message, "")
		})
	}
}

func TestCheckWebhooks(t *testing.T) {
	hook := Webhook{Configuration: "validatingwebhookconfiguration guard", Name: "nodes.example.com"}
	checkFirst(t, CheckWebhooks([]Webhook{hook}, ""), "", "", "", "")
	hook.Backend = "its service ops/guard has no ready endpoint"
	checkFirst(
		t,
		CheckWebhooks([]Webhook{hook}, ""),
		WebhookBlocksNodes,
		"",
		"ops/guard",
		"kubectl edit validatingwebhookconfiguration guard",
	)
	hook.Selective = true
	checkFirst(t, CheckWebhooks([]Webhook{hook}, ""), WebhookBlocksNodes, cloudprovider.Likely, "", "")
	checkFirst(t, CheckWebhooks(nil, "forbidden"), WebhooksUnchecked, cloudprovider.Unchecked, "forbidden", "")
}

func TestCheckState(t *testing.T) {
	for _, tt := range []struct {
		state, reason string
		cause         string
		certainty     cloudprovider.Certainty
		ended, shared bool
	}{
		{"running", "", "", "", false, false},
		{"terminated", "Client.InternalError", VolumeKeyDenied, cloudprovider.Likely, true, true},
		{"terminated", "Client.VolumeLimitExceeded", VolumeLimitExceeded, cloudprovider.Certain, true, true},
		{"terminated", "Client.InvalidSnapshot.NotFound", SnapshotNotFound, cloudprovider.Certain, true, true},
		{"terminated", "Client.InstanceInitiatedShutdown", InstanceShutItselfDown, cloudprovider.Certain, true, true},
		{"terminated", "Server.SpotInstanceTermination", SpotInterrupted, cloudprovider.Certain, true, false},
		{"terminated", "Server.InternalError", InstanceFailed, cloudprovider.Certain, true, false},
		{"shutting-down", "Client.UserInitiatedShutdown", InstanceTerminatedByOthers, cloudprovider.Certain, false, false},
		{"stopped", "Server.Unheard", InstanceFailed, cloudprovider.Likely, false, false},
	} {
		found := CheckState(Instance{ID: "i-1", State: tt.state, Reason: tt.reason, Class: "nodeclass/x"})
		if tt.cause == "" {
			if len(found) > 0 {
				t.Errorf("%s: found %+v", tt.state, found)
			}
			continue
		}
		if len(found) != 1 || found[0].Cause != tt.cause || found[0].Certainty != tt.certainty || found[0].InstanceGone != tt.ended ||
			(found[0].Scope != "") != tt.shared {
			t.Errorf("%s: found %+v, want %+v", tt.reason, found, tt)
		}
	}
}

// Nobody can correct user data that a node class does not set.
func TestRemedyDoesNotNameUserDataThatIsNotSet(t *testing.T) {
	for _, line := range []string{
		"nodeadm-config.service: Main process exited, code=exited, status=1", "cloud-init[123]: WARNING part-001 failed",
		`Failed to run Kubelet" err="failed to run Kubelet: no`, "kubelet: x509: certificate signed by unknown authority",
	} {
		for plain, want := range map[bool]bool{false: true, true: false} {
			found := CheckConsole(Instance{ID: "i-1", NoUserData: plain}, line)
			if len(found) != 1 || found[0].Remedy == "" || strings.Contains(found[0].Remedy, "userData") != want {
				t.Errorf("%s, class without user data %v: %+v", line, plain, found)
			}
			if strings.Contains(found[0].Remedy, "INSTANCE") {
				t.Errorf("the remedy does not name the instance: %s", found[0].Remedy)
			}
		}
	}
	down := CheckState(Instance{ID: "i-1", State: "stopped", Reason: "Client.InstanceInitiatedShutdown", NoUserData: true})
	if len(down) != 1 || !strings.Contains(down[0].Remedy, "in the image: the EC2NodeClass sets no spec.userData") {
		t.Errorf("%+v", down)
	}
}

func TestCheckConsole(t *testing.T) {
	i := Instance{ID: "i-1", Role: "role/node", Subnet: "subnet/s", Class: "nodeclass/x"}
	for _, tt := range []struct{ name, text, cause, scope string }{
		{"a node that works", "kubelet: I0101 Successfully registered node", "", ""},
		{
			"Unauthorized",
			`Nov 21 14:00:01 ip-10-0-0-1 kubelet: E1121 14:00:01.123456    1234 kubelet_node_status.go:106] "Unable to register node with API server" err="Unauthorized" node="x"`, NodeUnauthorized, "role/node",
		},
		{"Unauthorized, as kubectl says it", "error: You must be logged in to the server (Unauthorized)", NodeUnauthorized, "role/node"},
		{
			"forbidden",
			`kubelet: "Unable to register node with API server" err="nodes is forbidden: User \"nodes\" cannot create resource \"nodes\" in API group \"\" at the cluster scope"`, NodeForbidden, "role/node",
		},
		{
			"another node's name", `kubelet: err="nodes \"a\" is forbidden: node \"b\" is not allowed to modify node \"a\""`, NodeForbidden,
			"role/node",
		},
		{
			"CA of another cluster",
			`kubelet: Post "https://x/api/v1/nodes": tls: failed to verify certificate: x509: certificate signed by unknown authority`,
			EndpointUntrusted, "nodeclass/x",
		},
		{
			"no DNS", `kubelet: dial tcp: lookup ABC.gr7.eu-west-1.eks.amazonaws.com on 10.0.0.2:53: no such host`, EndpointNameUnresolved,
			"subnet/s",
		},
		{"no route", `kubelet: Post "https://x/api/v1/nodes": dial tcp 10.0.0.9:443: i/o timeout`, EndpointUnreachable, "subnet/s"},
		{
			"nodeadm cannot reach EC2",
			`nodeadm: {"level":"fatal","msg":"Command failed","error":"operation error EC2: DescribeInstances, https response error: context deadline exceeded"}`, EndpointUnreachable, "subnet/s",
		},
		{
			"nodeadm may not describe instances",
			`nodeadm: {"level":"fatal","error":"operation error EC2: DescribeInstances, api error UnauthorizedOperation: You are not authorized"}`,
			NodeRolePolicyMissing, "role/node",
		},
		{
			"user data of nodeadm", `nodeadm: {"level":"fatal","msg":"Command failed","error":"no kind NodeConfig"}`, BootstrapFailed,
			"nodeclass/x",
		},
		{"bootstrap.sh", "cloud-init: Exited with error on line 427", BootstrapFailed, "nodeclass/x"},
		{
			"cloud-init", "cloud-init: Failed to run module scripts-user (scripts in /var/lib/cloud/instance/scripts)", BootstrapFailed,
			"nodeclass/x",
		},
		{"Bottlerocket", "early-boot-config: Error: TOML parse error at line 3", BootstrapFailed, "nodeclass/x"},
		{
			"kubelet's flags", `kubelet: E1121 "command failed" err="failed to validate kubelet flags: unknown 'kubernetes.io' label"`,
			KubeletRefusesToStart, "nodeclass/x",
		},
		{
			"webhook", `kubelet: Internal error occurred: failed calling webhook "nodes.example.com": no endpoints available for service "guard"`,
			WebhookBlocksNodes, "cluster",
		},
		{
			"the last complaint counts", "kubelet: dial tcp 10.0.0.9:443: i/o timeout\nkubelet: err=\"Unauthorized\"\nkubelet: I retrying",
			NodeUnauthorized, "role/node",
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			found := CheckConsole(i, tt.text)
			if tt.cause == "" && len(found) > 0 ||
				tt.cause != "" && (len(found) != 1 || found[0].Cause != tt.cause || found[0].Scope != tt.scope || found[0].Remedy == "") {
				t.Errorf("found %+v, want %s of %s", found, tt.cause, tt.scope)
			}
		})
	}
}

// The same console line a minute later is the same finding: neither condition nor event are written again.
func TestConsoleMessageIsStable(t *testing.T) {
	line := func(at string) string {
		return "Nov 21 " + at + " ip-10-0-0-1 kubelet: E1121 " + at + `.123456    1234 kubelet.go] "Unable to register node" err="Unauthorized"` + "\n"
	}
	first, later := CheckConsole(
		Instance{ID: "i-1"},
		line("14:00:01"),
	), CheckConsole(
		Instance{ID: "i-1"},
		line("14:00:01")+line("14:01:07"),
	)
	if first[0] != later[0] || !strings.Contains(first[0].Message, `"Unable to register node" err="Unauthorized"`) {
		t.Errorf("%+v\n%+v", first[0], later[0])
	}
}
