package expression_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/util/intstr"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/expression"
)

var m5 = expression.Variables{InstanceType: "m5.xlarge", VCPUs: 4, MemoryMiB: 16384, ENIs: 4, IPsPerENI: 15}

// podsOf takes 58 pods unless the settings state otherwise.
func podsOf(k awsv1.KubeletConfiguration) int64 {
	if k.MaxPods != nil {
		return int64(k.MaxPods.IntValue())
	}
	return 58
}

func compiler(t testing.TB) *expression.Compiler {
	t.Helper()
	c, err := expression.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func maxPods(text string) awsv1.KubeletConfiguration {
	v := intstr.FromString(text)
	return awsv1.KubeletConfiguration{MaxPods: &v}
}

func TestMaxPods(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int64
		err  string
	}{
		{"110", 110, ""},
		{"max_pods", 58, ""},
		{"vcpus * 8 + 2", 34, ""},
		{"min(max_pods, 30)", 30, ""},
		{"max(max_pods, 30)", 58, ""},
		{"min(1.9, vcpus)", 1, ""}, // a mixture is a double, and doubles are cut
		{"max(vcpus, 4.9)", 4, ""},
		{"min(2.5, 1.5)", 1, ""},
		{"max(7, 7)", 7, ""},
		{"(default_enis - 1) * (ips_per_eni - 1) + 2", 44, ""},
		{"memory_mib / 1024", 16, ""},
		{"instance_type.startsWith('m5.') ? 20 : 10", 20, ""},
		{"double(vcpus) * 2.7", 10, ""},
		{"-0.5", 0, ""},
		{"2147483647", 2147483647, ""},
		{"0 - 1", 0, "is not a valid number of pods"},
		{"2147483648", 0, "is not a valid number of pods"},
		{"1 / (vcpus - 4)", 0, "division by zero"},
		{"1.0 / 0.0", 0, "out of range"},
		{"0.0 / 0.0", 0, "out of range"},
		{"9223372036854775807 + 1", 0, "overflow"},
		{
			"[1,2,3,4,5,6,7,8,9].map(a, [1,2,3,4,5,6,7,8,9].map(b, [1,2,3,4,5,6,7,8,9].map(c, [1,2,3,4,5,6,7,8,9].map(d, a * b * c * d)))).size()",
			0, "cost",
		},
	} {
		t.Run(tt.text, func(t *testing.T) {
			settings, err := compiler(t).Compile(maxPods(tt.text))
			if err != nil {
				t.Fatal(err)
			}
			k, err := settings.Kubelet(m5, podsOf)
			if tt.err != "" {
				var failed *expression.FailedError
				if !errors.As(err, &failed) || !strings.Contains(err.Error(), tt.err) || !strings.Contains(err.Error(), "m5.xlarge") ||
					failed.Field != "maxPods" {
					t.Fatalf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || podsOf(k) != tt.want {
				t.Errorf("%d, %v; want %d", podsOf(k), err, tt.want)
			}
		})
	}
}

func TestReserved(t *testing.T) {
	for _, tt := range []struct {
		name       string
		kube, want map[string]string
		maxPods    string
		err        string
	}{
		{name: "quantities stay", kube: map[string]string{"cpu": "73m", "memory": "1Gi"}, want: map[string]string{"cpu": "73m", "memory": "1Gi"}},
		{
			name: "cpu 73, memory 100",
			kube: map[string]string{"cpu": "vcpus + 69", "memory": "memory_mib - 16284"}, want: map[string]string{"cpu": "80m", "memory": "112Mi"},
		},
		{name: "multiples stay", kube: map[string]string{"cpu": "vcpus * 20", "memory": "vcpus * 4"}, want: map[string]string{
			"cpu":    "80m",
			"memory": "16Mi",
		}},
		{name: "zero stays", kube: map[string]string{"cpu": "vcpus * 0", "memory": "vcpus - 4"}, want: map[string]string{
			"cpu":    "0m",
			"memory": "0Mi",
		}},
		{
			name: "disk and processes",
			kube: map[string]string{"ephemeral-storage": "vcpus + 1", "pid": "vcpus * 1000"}, want: map[string]string{
				"ephemeral-storage": "5Gi",
				"pid":               "4000",
			},
		},
		{
			name: "too large to round",
			kube: map[string]string{"cpu": "9223372036854775807 * (vcpus - 3)", "memory": "9223372036854775807 - vcpus * 0"},
			want: map[string]string{"cpu": "9223372036854775807m", "memory": "9223372036854775807Mi"},
		},
		{name: "max_pods is the default", kube: map[string]string{"memory": "11 * max_pods + 2"}, want: map[string]string{"memory": "640Mi"}},
		{
			name: "max_pods is what maxPods comes to", maxPods: "max_pods / 2", kube: map[string]string{"memory": "11 * max_pods + 1"},
			want: map[string]string{"memory": "320Mi"},
		},
		{name: "negative", kube: map[string]string{"cpu": "vcpus - 5"}, err: "kubeReserved.cpu"},
		{name: "fails", kube: map[string]string{"memory": "1 % (vcpus - 4)"}, err: "kubeReserved.memory"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			k := awsv1.KubeletConfiguration{}
			if tt.maxPods != "" {
				k = maxPods(tt.maxPods)
			}
			k.KubeReserved, k.SystemReserved = tt.kube, tt.kube
			settings, err := compiler(t).Compile(k)
			if err != nil {
				t.Fatal(err)
			}
			got, err := settings.Kubelet(m5, podsOf)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("got %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, list := range []map[string]string{got.KubeReserved, got.SystemReserved} {
				if diff := cmp.Diff(tt.want, list); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestInvalid(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"vcpus +", "Syntax error"},
		{"'many'", "neither int nor double"},
		{"true", "neither int nor double"},
		{"uint(vcpus)", "neither int nor double"},
		{"dyn(vcpus)", "neither int nor double"},
		{"cores * 8", "undeclared reference to 'cores'"},
		{"vcpus * 2.7", "no matching overload"},
		{"min(1, 2, 3)", "no matching overload"},
		{"", "Syntax error"},
	} {
		t.Run(tt.text, func(t *testing.T) {
			_, err := compiler(t).Compile(maxPods(tt.text))
			var invalid *expression.InvalidError
			if !errors.As(err, &invalid) || invalid.Field != "maxPods" || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestNoExpressions(t *testing.T) {
	n := intstr.FromInt32(20)
	k := awsv1.KubeletConfiguration{MaxPods: &n, KubeReserved: map[string]string{"cpu": "100m"}}
	settings, err := compiler(t).Compile(k)
	if err != nil || settings.HasExpressions() || len(expression.Find(k)) != 0 {
		t.Errorf("expressions %v, %v", expression.Find(k), err)
	}
}
