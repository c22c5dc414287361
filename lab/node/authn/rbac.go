package authn

import (
	"context"
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// CloudControllerManager is the user that the cluster's cloud controller manager is.
const CloudControllerManager = "eks:cloud-controller-manager"

// InstallRBAC writes the RBAC objects that every EKS cluster is born with and that nodes and the cloud
// controller manager need. What a node may do to itself is the Node authorizer's matter, not RBAC's.
// Objects that exist are left as they are.
func InstallRBAC(ctx context.Context, client kubernetes.Interface) error {
	for _, role := range clusterRoles() {
		if _, err := client.RbacV1().ClusterRoles().Create(ctx, &role, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create ClusterRole %s: %w", role.Name, err)
		}
	}
	for _, binding := range clusterRoleBindings() {
		if _, err := client.RbacV1().ClusterRoleBindings().Create(ctx, &binding, metav1.CreateOptions{}); err != nil &&
			!apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create ClusterRoleBinding %s: %w", binding.Name, err)
		}
	}
	return nil
}

func clusterRoles() []rbacv1.ClusterRole {
	return []rbacv1.ClusterRole{
		{
			ObjectMeta: metav1.ObjectMeta{Name: "eks:node-bootstrapper"},
			Rules: []rbacv1.PolicyRule{
				rule("certificates.k8s.io", []string{"certificatesigningrequests/selfnodeserver"}, "create"),
			},
		},
		{
			ObjectMeta: metav1.ObjectMeta{Name: CloudControllerManager},
			Rules: []rbacv1.PolicyRule{
				rule("", []string{"nodes"}, "get", "list", "watch", "patch", "update", "delete"),
				rule("", []string{"nodes/status"}, "patch", "update"),
				rule("", []string{"events"}, "create", "patch", "update"),
				rule("events.k8s.io", []string{"events"}, "create", "patch", "update"),
				rule("coordination.k8s.io", []string{"leases"}, "get", "list", "watch", "create", "update"),
			},
		},
	}
}

func clusterRoleBindings() []rbacv1.ClusterRoleBinding {
	bind := func(role string, subjects ...rbacv1.Subject) rbacv1.ClusterRoleBinding {
		return rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects:   subjects,
		}
	}
	group := func(name string) rbacv1.Subject {
		return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: name}
	}
	return []rbacv1.ClusterRoleBinding{
		bind("eks:node-bootstrapper", group("system:bootstrappers"), group("system:nodes")),
		bind(CloudControllerManager, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: CloudControllerManager}),
	}
}

func rule(apiGroup string, resources []string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{apiGroup}, Resources: resources, Verbs: verbs}
}
