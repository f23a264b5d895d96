package shm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func hostTree(t *testing.T, boot string, ns map[string]string) string {
	t.Helper()
	files := map[string]string{"proc/self/ns/.keep": ""}
	if boot != "" {
		files["proc/sys/kernel/random/boot_id"] = boot + "\n"
	}
	root := tree(t, files)
	for kind, inode := range ns {
		if err := os.Symlink(kind+":["+inode+"]", filepath.Join(root, "proc/self/ns", kind)); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestHostIDHere(t *testing.T) {
	id := HostID()
	if id != HostID() {
		t.Error("two calls differ")
	}
	for _, ns := range []string{"pid:", "ipc:", "net:", "user:"} {
		if !strings.Contains(id, ns) {
			t.Errorf("%q lacks %s", id, ns)
		}
	}
}

func TestHostIDTellsHostsApart(t *testing.T) {
	all := map[string]string{"pid": "1", "ipc": "2", "net": "3", "user": "4"}
	base := hostID(hostTree(t, "boot-a", all))
	if again := hostID(hostTree(t, "boot-a", all)); again != base {
		t.Errorf("equal hosts differ: %q, %q", base, again)
	}
	if other := hostID(hostTree(t, "boot-b", all)); other == base {
		t.Error("another boot id is not noticed")
	}
	for kind := range all {
		changed := map[string]string{}
		for k, v := range all {
			changed[k] = v
		}
		changed[kind] = "99"
		if hostID(hostTree(t, "boot-a", changed)) == base {
			t.Errorf("another %s namespace is not noticed", kind)
		}
		delete(changed, kind)
		if hostID(hostTree(t, "boot-a", changed)) == base {
			t.Errorf("a missing %s namespace is not noticed", kind)
		}
	}
}

// Without a boot id nobody is a neighbour.
func TestHostIDUnknown(t *testing.T) {
	root := hostTree(t, "", map[string]string{"pid": "1"})
	one, two := hostID(root), hostID(root)
	if one == two {
		t.Error("two processes of unknown hosts look like neighbours")
	}
}
