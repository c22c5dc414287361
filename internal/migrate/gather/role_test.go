package gather

import (
	"context"
	"errors"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/eks/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/dovetail-k8s/dovetail/internal/doctor"
	"github.com/dovetail-k8s/dovetail/internal/migrate"
)

// associations has the roles of one ServiceAccount; none without a role.
type associations struct {
	role, target string
	err          error
}

func (a associations) ListPodIdentityAssociations(
	context.Context, *eks.ListPodIdentityAssociationsInput, ...func(*eks.Options),
) (*eks.ListPodIdentityAssociationsOutput, error) {
	out := &eks.ListPodIdentityAssociationsOutput{}
	if id := "a-1"; a.role != "" {
		out.Associations = []types.PodIdentityAssociationSummary{{AssociationId: &id}}
	}
	return out, a.err
}

func (a associations) DescribePodIdentityAssociation(
	context.Context, *eks.DescribePodIdentityAssociationInput, ...func(*eks.Options),
) (*eks.DescribePodIdentityAssociationOutput, error) {
	out := &types.PodIdentityAssociation{RoleArn: &a.role}
	if a.target != "" {
		out.TargetRoleArn = &a.target
	}
	return &eks.DescribePodIdentityAssociationOutput{Association: out}, a.err
}

// The role is the one that a person names, else that of the pod identity association, which EKS prefers, else that of the annotation.
func TestTheRoleIsTheOneThatThePodsHave(t *testing.T) {
	denied := errors.New("eks:ListPodIdentityAssociations is denied")
	for _, tt := range []struct {
		name, given, annotation string
		pods                    associations
		want                    string
		byPodIdentity, missed   bool
	}{
		{"named", "given", "annotated", associations{role: "associated"}, "given", false, false},
		{"both", "", "annotated", associations{role: "associated"}, "associated", true, false},
		{"of another account", "", "", associations{role: "associated", target: "target"}, "target", true, false},
		{"by annotation", "", "annotated", associations{}, "annotated", false, false},
		{"by annotation, as far as can be read", "", "annotated", associations{err: denied}, "annotated", false, false},
		{"neither", "", "", associations{}, "", false, true},
		{"unknown", "", "", associations{err: denied}, "", false, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "karpenter", Name: "karpenter"}}
			account.Annotations = map[string]string{roleAnnotation: tt.annotation}
			d := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "karpenter", Name: "karpenter"}}
			d.Spec.Template.Spec.ServiceAccountName = "karpenter"
			d.Spec.Template.Spec.Containers = []corev1.Container{{Image: "public.ecr.aws/karpenter/controller:1.15.1"}}
			f := &migrate.Facts{Cluster: &doctor.Facts{}, Deployments: []appsv1.Deployment{d}, RoleARN: tt.given}
			Configuration(t.Context(), fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).WithObjects(account).Build(), f)
			readRole(t.Context(), f, tt.pods)
			if _, missed := f.Cluster.Missed[migrate.Role]; f.RoleARN != tt.want || f.RoleByPodIdentity != tt.byPodIdentity || missed != tt.missed {
				t.Errorf("role %q, by pod identity %v, missed %v", f.RoleARN, f.RoleByPodIdentity, missed)
			}
		})
	}
}
