// Package apiserver reads from the API server what decides, in addition to AWS, whether nodes join: the ConfigMap aws-auth, and the
// admission webhooks that may reject a Node.
package apiserver

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	awsv1 "github.com/dovetail-k8s/dovetail/api/aws/v1"
	"github.com/dovetail-k8s/dovetail/api/condition"
	karpv1 "github.com/dovetail-k8s/dovetail/api/karpenter/v1"
	"github.com/dovetail-k8s/dovetail/internal/aws/join"
)

// Reader reads from the API server without a cache: these objects change rarely, and are not worth a watch.
type Reader struct{ Live client.Reader }

// AuthMap returns the data of ConfigMap kube-system/aws-auth.
func (r Reader) AuthMap(ctx context.Context) (data map[string]string, found bool, err error) {
	var m corev1.ConfigMap
	err = r.Live.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: "aws-auth"}, &m)
	if apierrors.IsNotFound(err) {
		return nil, false, nil
	}
	return m.Data, err == nil, err
}

// NodesOfRole counts the registered nodes of EC2NodeClasses with a role, by its name, or with an instance profile.
func (r Reader) NodesOfRole(ctx context.Context, role, profile string) (out join.Running, err error) {
	var classes awsv1.EC2NodeClassList
	if err := r.Live.List(ctx, &classes); err != nil {
		return out, err
	}
	uses := map[string]bool{}
	for _, c := range classes.Items {
		uses[c.Name] = role != "" && join.RoleName(c.Spec.Role) == role || profile != "" && c.Status.InstanceProfile == profile
	}
	var claims karpv1.NodeClaimList
	if err := r.Live.List(ctx, &claims); err != nil {
		return out, err
	}
	for i := range claims.Items {
		claim := &claims.Items[i]
		ref := claim.Spec.NodeClassRef
		if !awsv1.IsEC2NodeClass(ref) || !uses[ref.Name] || !condition.IsTrue(claim, karpv1.ConditionRegistered) {
			continue
		}
		if claim.Labels[corev1.LabelOSStable] == string(corev1.Windows) {
			out.Windows++
		} else {
			out.Linux++
		}
	}
	return out, nil
}
