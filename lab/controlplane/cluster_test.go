package controlplane_test

import (
	"context"
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func TestServesAsEKSDoes(t *testing.T) {
	c := sharedCluster(t)
	fromFile, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	for name, cfg := range map[string]*rest.Config{"RESTConfig": c.RESTConfig(), "kubeconfig": fromFile} {
		client := clientOf(t, cfg)
		nodes, err := client.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Errorf("%s: list nodes: %v", name, err)
		} else if len(nodes.Items) != 0 {
			t.Errorf("%s: %d nodes in a new cluster", name, len(nodes.Items))
		}
	}

	client := clientOf(t, c.RESTConfig())
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if got := version.Major + "." + version.Minor; got != c.Version() {
		t.Errorf("the server says version %s, Version() says %s", got, c.Version())
	}
	if !strings.HasPrefix(version.GitVersion, "v"+c.Version()+".") {
		t.Errorf("the server says release %s, want one of v%s", version.GitVersion, c.Version())
	}

	dns, err := client.CoreV1().Services("kube-system").Get(t.Context(), "kube-dns", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := "10.100.0.10"; dns.Spec.ClusterIP != want {
		t.Errorf("kube-dns is at %s, want %s", dns.Spec.ClusterIP, want)
	}
}

func TestStateIsForItsOwnerOnly(t *testing.T) {
	c := sharedCluster(t)
	err := filepath.WalkDir(filepath.Dir(c.Kubeconfig()), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %v", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestRBAC(t *testing.T) {
	c := sharedCluster(t)
	admin := clientOf(t, c.RESTConfig())
	listPods := func(client kubernetes.Interface) error {
		_, err := client.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
		return err
	}
	jane := as(t, c, "jane", "developers")
	if err := listPods(jane); !apierrors.IsForbidden(err) {
		t.Errorf("a user without a role lists pods: got %v, want forbidden", err)
	}
	stranger := c.RESTConfig()
	stranger.CertData, stranger.KeyData = nil, nil
	stranger.BearerToken = "made-up"
	if err := listPods(clientOf(t, stranger)); !apierrors.IsUnauthorized(err) {
		t.Errorf("a client with a made-up token lists pods: got %v, want unauthorized", err)
	}

	bind(t, admin, "developers-view", "view", rbacv1.Subject{Kind: "Group", APIGroup: rbacv1.GroupName, Name: "developers"})
	eventually(t, func(context.Context) error { return listPods(jane) })
}

func TestNodesAreRestricted(t *testing.T) {
	c := sharedCluster(t)
	mine := as(t, c, "system:node:ip-10-0-1-1.ec2.internal", "system:nodes").CoreV1().Nodes()
	node := func(name string, labels map[string]string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
	}
	const own, other = "ip-10-0-1-1.ec2.internal", "ip-10-0-1-2.ec2.internal"
	admin := clientOf(t, c.RESTConfig()).CoreV1().Nodes()
	if _, err := admin.Create(t.Context(), node(other, nil), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { deleteNodes(t, admin, own, other) })

	wantForbidden := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: got %v, want forbidden", what, err)
		}
	}
	_, err := mine.Create(t.Context(), node("ip-10-0-1-3.ec2.internal", nil), metav1.CreateOptions{})
	wantForbidden("registers under another name", err)
	_, err = mine.Create(
		t.Context(),
		node(own, map[string]string{"node-restriction.kubernetes.io/team": "payments"}),
		metav1.CreateOptions{},
	)
	wantForbidden("registers with a label that is not for nodes to set", err)

	if _, err := mine.Create(t.Context(), node(own, map[string]string{"nodegroup": "general"}), metav1.CreateOptions{}); err != nil {
		t.Fatalf("registers as itself: %v", err)
	}
	patch := func(name, patch string) error {
		_, err := mine.Patch(t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	wantForbidden("labels another node", patch(other, `{"metadata":{"labels":{"nodegroup":"mine"}}}`))
	wantForbidden("forges a label of its own", patch(own, `{"metadata":{"labels":{"node-role.kubernetes.io/control-plane":""}}}`))
	wantForbidden("removes its taints", patch(own, `{"spec":{"taints":[{"key":"a","effect":"NoSchedule"}]}}`))
	if err := patch(own, `{"metadata":{"labels":{"nodegroup":"gpu"}}}`); err != nil {
		t.Errorf("changes a label of its own: %v", err)
	}
	_, err = as(t, c, "system:node:"+own, "system:nodes").CoreV1().Secrets("kube-system").List(t.Context(), metav1.ListOptions{})
	wantForbidden("lists secrets", err)
}

func TestServiceAccountToken(t *testing.T) {
	c := sharedCluster(t)
	admin := clientOf(t, c.RESTConfig())
	accounts := admin.CoreV1().ServiceAccounts("kube-system")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "dovetail"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := accounts.Delete(context.Background(), "dovetail", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	bind(t, admin, "dovetail-view", "view", rbacv1.Subject{Kind: "ServiceAccount", Namespace: "kube-system", Name: "dovetail"})

	with := func(audiences ...string) *rest.Config {
		token, err := accounts.CreateToken(t.Context(), "dovetail", &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{Audiences: audiences},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return &rest.Config{
			Host:            c.Endpoint(),
			BearerToken:     token.Status.Token,
			TLSClientConfig: rest.TLSClientConfig{CAData: c.CA()},
		}
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := c.WriteKubeconfig(path, with()); err != nil {
		t.Fatal(err)
	}
	fromFile, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	account := clientOf(t, fromFile)
	if got, want := whoAmI(t, account), "system:serviceaccount:kube-system:dovetail"; got != want {
		t.Errorf("the token is for %q, want %q", got, want)
	}
	eventually(t, func(ctx context.Context) error {
		_, err := account.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		return err
	})
	_, err = clientOf(t, with("sts.amazonaws.com")).CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("a token for another audience: got %v, want unauthorized", err)
	}
}

func whoAmI(t *testing.T, client kubernetes.Interface) string {
	t.Helper()
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(
		t.Context(),
		&authenticationv1.SelfSubjectReview{},
		metav1.CreateOptions{},
	)
	if err != nil {
		t.Fatal(err)
	}
	return review.Status.UserInfo.Username
}

func bind(t *testing.T, admin kubernetes.Interface, name, role string, to rbacv1.Subject) {
	t.Helper()
	bindings := admin.RbacV1().ClusterRoleBindings()
	_, err := bindings.Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects:   []rbacv1.Subject{to},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bindings.Delete(context.Background(), name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}
