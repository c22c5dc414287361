package v1_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

const manifest = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: a}
spec:
  role: nodes
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{name: c}]
  associatePublicIPAddress: false
  detailedMonitoring: false
  tags: {d: e}
  kubelet:
    maxPods: 42
    kubeReserved: {cpu: 100m}
    clusterDNS: [10.0.0.10]
    topologyManagerPolicy: best-effort
    shutdownGracePeriod: 30s
  blockDeviceMappings:
    - deviceName: /dev/xvda
      rootVolume: true
      ebs: {volumeSize: 20Gi, encrypted: false, iops: 0}
    - deviceName: /dev/xvdb
  metadataOptions: {httpTokens: required, httpPutResponseHopLimit: 1}
  connectionTracking: {udpTimeout: 30}
status: {}
`

func class(t *testing.T, text string) *awsv1.EC2NodeClass {
	t.Helper()
	c := &awsv1.EC2NodeClass{}
	if err := yaml.UnmarshalStrict([]byte(text), c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestManifestsComeBackAsTheyWere(t *testing.T) {
	var want, got map[string]any
	if err := yaml.Unmarshal([]byte(manifest), &want); err != nil {
		t.Fatal(err)
	}
	text, err := yaml.Marshal(class(t, manifest).DeepCopy())
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestKubeletConfiguration(t *testing.T) {
	whole := intstr.FromInt32(42)
	formula := intstr.FromString("vcpus * 10")
	tests := []struct {
		name, json string
		want       awsv1.KubeletConfiguration
		fails      bool
	}{
		{"nothing", "", awsv1.KubeletConfiguration{}, false},
		{"empty", "{}", awsv1.KubeletConfiguration{}, false},
		{"a number of pods", `{"maxPods": 42}`, awsv1.KubeletConfiguration{MaxPods: &whole}, false},
		{"an expression", `{"maxPods": "vcpus * 10"}`, awsv1.KubeletConfiguration{MaxPods: &formula}, false},
		{
			"fields that are passed on unread", `{"topologyManagerPolicy": "best-effort", "evictionHard": {"memory.available": "5%"}}`,
			awsv1.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "5%"}},
			false,
		},
		{"a field of the wrong type", `{"podsPerCore": "two"}`, awsv1.KubeletConfiguration{}, true},
		{"no object", `[]`, awsv1.KubeletConfiguration{}, true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := &awsv1.EC2NodeClass{}
			if tt.json != "" {
				c.Spec.Kubelet = &runtime.RawExtension{Raw: []byte(tt.json)}
			}
			got, err := c.KubeletConfiguration()
			if (err != nil) != tt.fails {
				t.Fatalf("error %v, want one: %v", err, tt.fails)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func hash(t *testing.T, c *awsv1.EC2NodeClass, in awsv1.HashInput) string {
	t.Helper()
	sum, err := c.Hash(in)
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// Nodes outlive versions of the program: a hash that moved without its version would replace them all.
func TestHashIsStable(t *testing.T) {
	in := awsv1.HashInput{AMIFamily: "AL2023", ClusterCABundle: "Y2E="}
	if got, want := hash(t, class(t, manifest), in), "2172019784377356225"; got != want {
		t.Errorf("hash = %s, want %s: a change of the hash needs a new NodeClassHashVersion", got, want)
	}
}

func TestHash(t *testing.T) {
	yes := true
	two := int32(2)
	size := func(c *awsv1.EC2NodeClass, size string) {
		q := resource.MustParse(size)
		c.Spec.BlockDeviceMappings[0].EBS.VolumeSize = &q
	}
	kubelet := func(json string) func(*awsv1.EC2NodeClass, *awsv1.HashInput) {
		return func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) {
			c.Spec.Kubelet = &runtime.RawExtension{Raw: []byte(json)}
		}
	}
	type change = func(*awsv1.EC2NodeClass, *awsv1.HashInput)
	tests := []struct {
		name    string
		change  change
		changes bool
	}{
		{"role", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.Role = "other" }, true},
		{"instance profile", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.InstanceProfile = "other" }, true},
		{"user data", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.UserData = "other" }, true},
		{"tags", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.Tags["d"] = "f" }, true},
		{"public address", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.AssociatePublicIPAddress = &yes }, true},
		{"monitoring", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.DetailedMonitoring = &yes }, true},
		{"volume size", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { size(c, "21Gi") }, true},
		{"device", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) {
			c.Spec.BlockDeviceMappings[1].DeviceName = "/dev/xvdc"
		}, true},
		{"volume size left to the snapshot", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) {
			c.Spec.BlockDeviceMappings[0].EBS.VolumeSize = nil
		}, true},
		{"instance store", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.InstanceStorePolicy = "RAID0" }, true},
		{"metadata options", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.MetadataOptions.HTTPTokens = "optional" }, true},
		{"connection tracking", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.ConnectionTracking = nil }, true},
		{"network interfaces", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) {
			c.Spec.NetworkInterfaces = []awsv1.NetworkInterface{{InterfaceType: "interface"}}
		}, true},
		{"placement group", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) {
			c.Spec.PlacementGroupSelector = &awsv1.PlacementGroupSelector{Name: "a"}
		}, true},
		{"context", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.Context = "a" }, true},
		{"enclaves", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) {
			c.Spec.EnclaveOptions = &awsv1.EnclaveOptions{Enabled: true}
		}, true},
		// Case 22: as with Karpenter, nodes drift.
		{"enclaves that are off", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.EnclaveOptions = &awsv1.EnclaveOptions{} }, true},
		{"CPU options", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) {
			c.Spec.CPUOptions = &awsv1.CPUOptions{NestedVirtualization: "enabled"}
		}, true},
		{
			"kubelet",
			kubelet(
				`{"maxPods": 43, "kubeReserved": {"cpu": "100m"}, "clusterDNS": ["10.0.0.10"], "topologyManagerPolicy": "best-effort", "shutdownGracePeriod": "30s"}`,
			),
			true,
		},
		{"kubelet removed", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.Kubelet = nil }, true},
		{"resolved family", func(_ *awsv1.EC2NodeClass, in *awsv1.HashInput) { in.AMIFamily = "AL2" }, true},
		{"certificate authority", func(_ *awsv1.EC2NodeClass, in *awsv1.HashInput) { in.ClusterCABundle = "bmV3" }, true},

		{
			"order of fields of kubelet",
			kubelet(
				`{"shutdownGracePeriod": "30s", "topologyManagerPolicy": "best-effort", "clusterDNS": ["10.0.0.10"],  "kubeReserved": {"cpu": "100m"}, "maxPods": 42}`,
			),
			false,
		},
		{"order of devices", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) {
			d := c.Spec.BlockDeviceMappings
			d[0], d[1] = d[1], d[0]
		}, false},
		{"spelling of the volume size", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { size(c, "20480Mi") }, false},
		{"subnet terms", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.SubnetSelectorTerms = nil }, false},
		{"security group terms", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.SecurityGroupSelectorTerms = nil }, false},
		{"reservation terms", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) {
			c.Spec.CapacityReservationSelectorTerms = []awsv1.CapacityReservationSelectorTerm{{ID: "cr-1"}}
		}, false},
		{"image terms", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.AMISelectorTerms = nil }, false},
		{"family as written", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.AMIFamily = "AL2023" }, false},
		{"prefixes", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Spec.IPPrefixCount = &two }, false},
		{"status", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Status.InstanceProfile = "a" }, false},
		{"annotations", func(c *awsv1.EC2NodeClass, _ *awsv1.HashInput) { c.Annotations = map[string]string{"a": "b"} }, false},
	}
	in := awsv1.HashInput{AMIFamily: "AL2023", ClusterCABundle: "Y2E="}
	before := hash(t, class(t, manifest), in)
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, in := class(t, manifest), in
			tt.change(c, &in)
			if changed := hash(t, c, in) != before; changed != tt.changes {
				t.Errorf("hash changes: %v, want %v", changed, tt.changes)
			}
		})
	}
	empty := class(t, manifest)
	empty.Spec.Kubelet = &runtime.RawExtension{Raw: []byte(" { } ")}
	none := class(t, manifest)
	none.Spec.Kubelet = nil
	if hash(t, empty, in) != hash(t, none, in) {
		t.Error("an empty kubelet section counts as one")
	}
}

func TestHashOfBrokenKubelet(t *testing.T) {
	c := class(t, manifest)
	c.Spec.Kubelet = &runtime.RawExtension{Raw: []byte("[1]")}
	if _, err := c.Hash(awsv1.HashInput{}); err == nil {
		t.Error("no error")
	}
}
