package world

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os/exec"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/dovetail-k8s/dovetail/lab/awsim"
	"github.com/dovetail-k8s/dovetail/lab/awsim/iam"
)

// allowAll is an IAM policy that allows every action.
const allowAll = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Action":"*","Resource":"*"}]}`

// Role is the IAM role of the cluster's autoscaler. Where clusters share a name, each but the first has one of its own,
// named by its ID.
func (c *Cluster) Role() string {
	if c.world.cfg.OneName && c.ID != clusterName(0, c.world.cfg.Clusters) {
		return awsim.ControllerRole(c.ID)
	}
	return awsim.ControllerRole(c.Name)
}

// grant attaches to the role of the cluster's autoscaler the policy that `dovetail iam-policy` prints for this cluster, and
// nothing more. Another autoscaler may do everything.
func (c *Cluster) grant(ctx context.Context) error {
	account := c.world.AWS.IAM()
	if _, known := account.Role(c.Role()); !known {
		original, _ := account.Role(awsim.ControllerRole(c.Name))
		if _, err := account.CreateRole(iam.Role{Name: c.Role(), TrustPolicy: original.TrustPolicy}); err != nil {
			return fmt.Errorf("role of cluster %s: %w", c.ID, err)
		}
	}
	document := allowAll
	if c.world.cfg.Dovetail != "" && !c.world.cfg.Unrestricted {
		var err error
		if document, err = c.policy(ctx); err != nil {
			return err
		}
	}
	if err := account.PutRolePolicy(c.Role(), "controller", document); err != nil {
		return fmt.Errorf("grant role %s its policy: %w", c.Role(), err)
	}
	return nil
}

// policy returns the output of `dovetail iam-policy`.
func (c *Cluster) policy(ctx context.Context, more ...string) (string, error) {
	var system *corev1.Namespace
	err := Until(ctx, func() (err error) {
		system, err = c.clientset.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		return err
	})
	if err != nil {
		return "", fmt.Errorf("identity of cluster %s: %w", c.ID, err)
	}
	var out, notes bytes.Buffer
	args := []string{
		"iam-policy", "--cluster-name", c.Name, "--identity", string(system.UID),
		"--region", c.world.cfg.Region, "--account", c.world.AWS.AccountID(), "--interruption-queue", c.Name,
	}
	if c.world.cfg.RebootForRepair {
		args = append(args, "--reboot-for-repair")
	}
	cmd := exec.CommandContext(ctx, c.world.cfg.Dovetail, append(args, more...)...)
	cmd.Stdout, cmd.Stderr = &out, &notes
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, notes.Bytes())
	}
	return out.String(), nil
}

// absentProfile matches a denied call for a deleted instance profile: its ARN lacks the path that all profiles have.
// Such a call repeats a deletion with a lost response. IAM answers AccessDenied, not NoSuchEntity, if a policy requires
// tags.
var absentProfile = regexp.MustCompile(`iam:(Delete|RemoveRoleFrom)InstanceProfile on resource: \S+:instance-profile/[^/ ]+ because`)

// DeniedCalls names the autoscalers' calls that the policies of their roles denied.
func (w *World) DeniedCalls() []string {
	if w.AWS == nil {
		return nil
	}
	found := map[string]bool{}
	for _, c := range w.AWS.Calls() {
		if c.ErrorCode != "" && strings.Contains(c.ErrorMessage, "no identity-based policy allows") &&
			!absentProfile.MatchString(c.ErrorMessage) {
			found[c.Service+":"+c.Action+": "+c.ErrorMessage] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}
