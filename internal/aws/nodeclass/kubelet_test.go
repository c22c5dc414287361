package nodeclass

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
)

func TestCheckKubelet(t *testing.T) {
	for _, tc := range []struct{ name, family, kubelet, want string }{
		{"nothing", "AL2", ``, ""},
		{"empty", "AL2", `{}`, ""},
		{"plain", "Bottlerocket", `{"maxPods": 42, "kubeReserved": {"cpu": "80m"}, "clusterDNS": ["10.0.0.1"]}`, ""},
		{"wrong type", "AL2023", `{"podsPerCore": "many"}`, "InvalidKubeletConfiguration"},
		{"misspelled field, with which no kubelet starts", "AL2023", `{"maxPod": 20}`, "InvalidKubeletConfiguration"},
		{"misspelled field", "AL2", `{"maxPod": 20}`, "InvalidKubeletConfiguration"},
		{"negative maxPods", "AL2023", `{"maxPods": -1}`, "InvalidKubeletConfiguration"},
		{"taints", "AL2023", `{"registerWithTaints": []}`, "InvalidKubeletConfiguration"},
		{"unknown reserved resource", "AL2023", `{"kubeReserved": {"gpu": "1"}}`, "InvalidKubeletConfiguration"},
		{"unknown eviction signal", "AL2023", `{"evictionHard": {"memory.free": "5%"}}`, "InvalidKubeletConfiguration"},
		{"unknown signal to reclaim", "AL2023", `{"evictionMinimumReclaim": {"memory.free": "5%"}}`, "InvalidKubeletConfiguration"},
		{"eviction above 100 %", "AL2023", `{"evictionHard": {"memory.available": "101%"}}`, "InvalidKubeletConfiguration"},
		{"eviction of a negative share", "AL2023", `{"evictionHard": {"memory.available": "-1%"}}`, "InvalidKubeletConfiguration"},
		{"eviction of a negative quantity", "AL2023", `{"evictionHard": {"memory.available": "-1Gi"}}`, "InvalidKubeletConfiguration"},
		{"eviction threshold that is not a quantity", "AL2023", `{"evictionHard": {"memory.available": "some"}}`, "InvalidKubeletConfiguration"},
		{
			"eviction by share and quantity", "AL2023",
			`{"evictionHard": {"memory.available": "5%", "nodefs.available": "1Gi", "pid.available": "100%"}}`, "",
		},
		{
			"grace that is not a duration", "AL2023",
			`{"evictionSoft": {"memory.available": "5%"}, "evictionSoftGracePeriod": {"memory.available": "soon"}}`, "InvalidKubeletConfiguration",
		},
		{
			"negative grace", "AL2023", `{"evictionSoft": {"memory.available": "5%"}, "evictionSoftGracePeriod": {"memory.available": "-1m"}}`,
			"InvalidKubeletConfiguration",
		},
		{"threshold above 100 %", "AL2023", `{"imageGCHighThresholdPercent": 101}`, "InvalidKubeletConfiguration"},
		{"negative threshold", "AL2023", `{"imageGCLowThresholdPercent": -1}`, "InvalidKubeletConfiguration"},
		{"negative podsPerCore", "AL2023", `{"podsPerCore": -1}`, "InvalidKubeletConfiguration"},
		{"negative grace of pods", "AL2023", `{"evictionMaxPodGracePeriod": -1}`, "InvalidKubeletConfiguration"},
		{"negative reserve", "AL2023", `{"systemReserved": {"cpu": "-1"}}`, "InvalidKubeletConfiguration"},
		{"soft eviction without grace", "AL2023", `{"evictionSoft": {"memory.available": "5%"}}`, "InvalidKubeletConfiguration"},
		{
			"soft eviction with the grace of another signal", "AL2023",
			`{"evictionSoft": {"memory.available": "5%"}, "evictionSoftGracePeriod": {"nodefs.available": "1m"}}`, "InvalidKubeletConfiguration",
		},
		{
			"thresholds the wrong way round", "AL2023", `{"imageGCHighThresholdPercent": 50, "imageGCLowThresholdPercent": 60}`,
			"InvalidKubeletConfiguration",
		},
		{"podsPerCore of zero", "AL2023", `{"podsPerCore": 0}`, ""},
		{"expression for maxPods", "AL2023", `{"maxPods": "vcpus * 10"}`, "KubeletExpressionsDisabled"},
		{"expression for a reserve", "AL2023", `{"kubeReserved": {"cpu": "vcpus * 15"}}`, "KubeletExpressionsDisabled"},
		{"any field on AL2023", "AL2023", `{"topologyManagerPolicy": "best-effort"}`, ""},
		{"any field on AL2, which ignores it", "AL2", `{"topologyManagerPolicy": "best-effort"}`, ""},
		{"podsPerCore on Bottlerocket, which ignores it", "Bottlerocket", `{"podsPerCore": 3}`, ""},
		{"negative podsPerCore on Bottlerocket", "Bottlerocket", `{"podsPerCore": -3}`, "InvalidKubeletConfiguration"},
		{"podsPerCore on AL2", "AL2", `{"podsPerCore": 3}`, ""},
		{"two DNS servers on Windows, which takes the first", "Windows2022", `{"clusterDNS": ["10.0.0.1", "10.0.0.2"]}`, ""},
		{"two DNS servers on AL2023", "AL2023", `{"clusterDNS": ["10.0.0.1", "10.0.0.2"]}`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			class := &awsv1.EC2NodeClass{Spec: awsv1.EC2NodeClassSpec{AMIFamily: tc.family}}
			if tc.kubelet != "" {
				class.Spec.Kubelet = &runtime.RawExtension{Raw: []byte(tc.kubelet)}
			}
			if got := CheckKubelet(class, false); got.Reason != tc.want {
				t.Errorf("got %+v, want %q", got, tc.want)
			}
		})
	}
}

func TestConditionNamesIgnoredKubeletFields(t *testing.T) {
	for _, tc := range []struct{ family, kubelet, want string }{
		{"Bottlerocket", `{"podsPerCore": 3, "maxPods": 20}`, "image family Bottlerocket has no setting for spec.kubelet.podsPerCore; ignored"},
		{
			"AL2", `{"topologyManagerPolicy": "best-effort", "cpuManagerPolicy": "static", "clusterDNS": ["10.0.0.1", "10.0.0.2"]}`,
			"image family AL2 has no setting for spec.kubelet.cpuManagerPolicy, spec.kubelet.topologyManagerPolicy; ignored; image family AL2 takes one entry of spec.kubelet.clusterDNS; the others are ignored",
		},
		{"AL2023", `{"podsPerCore": 3, "topologyManagerPolicy": "best-effort"}`, ""},
		{"Custom", `{"podsPerCore": 3}`, ""},
		{"Windows2022", `{"podsPerCore": 3}`, ""},
		{"Bottlerocket", "", ""},
	} {
		class := &awsv1.EC2NodeClass{Spec: awsv1.EC2NodeClassSpec{AMIFamily: tc.family}}
		if tc.kubelet != "" {
			class.Spec.Kubelet = &runtime.RawExtension{Raw: []byte(tc.kubelet)}
		}
		if got := ignoredFields(class); got != tc.want {
			t.Errorf("%s %s:\n%q\nwant\n%q", tc.family, tc.kubelet, got, tc.want)
		}
	}
}
