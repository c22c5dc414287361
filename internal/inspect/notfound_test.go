package inspect_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/internal/inspect"
)

func TestNotFoundNamesWhatWasProbablyMeant(t *testing.T) {
	var nodes []*corev1.Node
	for _, name := range []string{"ip-10-0-1-7.ec2.internal", "ip-10-0-1-71.ec2.internal", "ip-10-0-2-5.ec2.internal", "general", "ip-10-0-1-70.ec2.internal"} {
		nodes = append(nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for name, want := range map[string]string{
		"ip-10-0-2-5": `the cluster has no Node "ip-10-0-2-5"; did you mean ip-10-0-2-5.ec2.internal?`,
		"ip-10-0-1":   `the cluster has no Node "ip-10-0-1"; there is ip-10-0-1-7.ec2.internal, ip-10-0-1-70.ec2.internal, ip-10-0-1-71.ec2.internal`,
		"ip":          `the cluster has no Node "ip"; there is ip-10-0-1-7.ec2.internal, ip-10-0-1-70.ec2.internal, ip-10-0-1-71.ec2.internal and 1 more`,
		"genral":      `the cluster has no Node "genral"; did you mean general?`,
		"nothing":     `the cluster has no Node "nothing"`,
		"":            `the cluster has no Node ""`,
	} {
		if got := inspect.NotFound("Node", name, nodes).Error(); got != want {
			t.Errorf("%q: %s", name, got)
		}
	}
}
