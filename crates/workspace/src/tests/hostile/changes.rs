//! Changes of a repository that a hostile user can make.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{lchown, symlink};

use super::*;

/// The apparent size of a huge file: more than the memory that a process of git may allocate. Git
/// maps a list of refs of 3 GiB for several seconds in each call.
const HUGE: u64 = 5 << 28;

/// The pieces that are replaced: entries of a git directory, and with a slash those of the tree.
/// The dot is the git directory itself.
const PIECES: &str = "\
    . HEAD config index packed-refs shallow FETCH_HEAD refs refs/heads refs/heads/BRANCH \
    logs logs/HEAD objects objects/info objects/info/alternates objects/pack \
    objects/pack/PACK.idx info info/exclude info/attributes hooks commondir \
    objects/info/commit-graphs/commit-graph-chain worktrees/x/gitdir modules \
    modules/lib/config config.worktree /.gitignore /.gitattributes /x/.gitignore /main.txt";
/// The ways in which a piece is replaced.
const N_WAYS: usize = 10;

/// Further settings that run a program, or name a file or a repository.
const MORE_PROGRAMS: &str = "\
    alias.log core.attributesFile core.excludesFile core.hooksPath core.worktree diff.tool \
    difftool.mark.cmd extensions.partialClone gc.recentObjectsHook gpg.ssh.defaultKeyCommand \
    gpg.x509.program interactive.diffFilter mergetool.mark.cmd pager.diff \
    remote.origin.receivepack submodule.lib.update trailer.mark.command trailer.mark.cmd";

const ATTRIBUTES: &str = "\
    * filter=mark diff=mark merge=mark\n\
    * working-tree-encoding=UTF-16\n\
    * text eol=crlf ident\n\
    *.txt working-tree-encoding=UTF-7 -text\n\
    [attr]binary filter=mark\n\
    * binary export-subst !diff\n\
    \0* filter=mark\n\
    \u{feff}* ident\n";

/// A linear congruential generator with the numbers of Knuth's MMIX.
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Self((seed + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        for _ in 0..4 {
            dice.below(2);
        }
        dice
    }

    pub(super) fn below(&mut self, n: usize) -> usize {
        let next = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = next.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % n as u64).unwrap()
    }

    pub(super) fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// Picks one of the parts of a text.
    pub(super) fn part<'a>(&mut self, all: &'a str, between: &str) -> &'a str {
        self.pick(&all.split(between).collect::<Vec<_>>())
    }
}

/// Writes commits with odd trees into the repository `crafted`, and returns their ids. The links
/// lead to the private folder, seen from a clone and from the source.
pub(super) fn craft(bed: &Bed, private: &str) -> Vec<String> {
    let crafted = bed.folder.path().join("crafted");
    bed.git(bed.folder.path(), &["init", "--quiet", "--bare", "--template=", "crafted"]);
    let borrowed = format!("{}\n", bed.source().join(".git/objects").display());
    std::fs::write(crafted.join("objects/info/alternates"), borrowed).unwrap();
    let write = |kind: &str, content: &[u8]| {
        std::fs::write(crafted.join("object"), content).unwrap();
        bed.git(&crafted, &["hash-object", "-w", "--literally", "-t", kind, "object"])
    };
    let tree = |entries: &[(&str, &str, &String)]| {
        let mut bytes = Vec::new();
        for (mode, name, id) in entries {
            bytes.extend_from_slice(format!("{mode} {name}\0").as_bytes());
            bytes
                .extend((0..20).map(|at| u8::from_str_radix(&id[2 * at..2 * at + 2], 16).unwrap()));
        }
        write("tree", &bytes)
    };
    let (zero, private) = ("0".repeat(40), private.to_owned());
    let file = write("blob", b"crafted $Id$\n");
    let link = write("blob", b"../../../../private-0/folder");
    let near = write("blob", b"../private-0/folder");
    let secret = write("blob", b"../../../../private-0/secret");
    let attributes = write("blob", ATTRIBUTES.as_bytes());
    let modules = |name: &str, path: &str, url: &str| {
        let text =
            format!("[submodule \"{name}\"]\n\tpath = {path}\n\turl = {url}\n\tupdate = !id\n");
        write("blob", text.as_bytes())
    };
    let (f, d, l, g) = ("100644", "40000", "120000", "160000");
    let below = tree(&[(f, "secret", &file)]);
    let lib = tree(&[(g, "lib", &private)]);
    let mut trees = Vec::new();
    for [one, two] in [[&link, &below], [&near, &below], [&link, &lib]] {
        trees.push(tree(&[(d, "link", two), (l, "link", one)]));
        trees.push(tree(&[(l, "link", one), (d, "link", two)]));
    }
    for name in [".git", ".GIT", "git~1", ".", "..", "a/b", "", "../../../../private-0/folder"] {
        trees.push(tree(&[(d, name, &below)]));
        trees.push(tree(&[(f, name, &file)]));
    }
    for name in [".gitmodules", ".gitattributes", ".gitignore", "main.txt"] {
        trees.push(tree(&[(l, name, &secret)]));
        trees.push(tree(&[(f, name, &attributes), (l, name, &secret)]));
        trees.push(tree(&[(d, name, &below)]));
    }
    trees.push(tree(&[(f, "null", &zero), (g, "nulled", &zero)]));
    trees.push(tree(&[("0120000", "padded", &link), ("0100644", "z", &file)]));
    trees.push(tree(&[("777777", "odd", &file), ("20000", "device", &file)]));
    trees.push(tree(&[(f, "b", &file), (f, "a", &file), (f, "b", &attributes)]));
    trees.push(tree(&[(f, "a", &file), (d, "a", &below), (l, "a", &link)]));
    trees.push(tree(&[(f, ".gitattributes", &attributes), (f, "main.txt", &file)]));
    for (name, path, url) in [
        ("lib", "lib", "../private-0/repo"),
        ("lib", "lib", "../private-65534/repo"),
        ("../../x", "lib", "../library"),
        ("lib", "../../../../private-0/folder", "../library"),
        ("lib", "lib", "ext::sh -c id"),
        ("lib", "lib", "--upload-pack=id"),
        ("lib", ".git/modules", "../source/.git"),
    ] {
        trees.push(tree(&[(f, ".gitmodules", &modules(name, path, url)), (g, "lib", &private)]));
    }
    let through = modules("lib", "link/lib", "../library");
    trees.push(tree(&[(f, ".gitmodules", &through), (d, "link", &lib), (l, "link", &link)]));
    let parent = bed.git(&bed.source(), &["rev-parse", "HEAD"]);
    let commit = |tree: &String| {
        let by = "Ann <ann@example.invalid> 0 +0000";
        let head =
            format!("tree {tree}\nparent {parent}\nauthor {by}\ncommitter {by}\n\ncrafted\n");
        write("commit", head.as_bytes())
    };
    trees.iter().map(commit).collect()
}

/// A repository that is changed as its owner could do it.
pub(super) struct Target<'a> {
    pub(super) bed: &'a Bed,
    pub(super) tree: PathBuf,
    pub(super) owner: u32,
    pub(super) branch: &'static str,
}

impl Target<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.bed.folder.path().join(name)
    }

    /// Returns a user other than the owner, who is not root.
    const fn other(&self) -> u32 {
        if self.owner == AGENT { PERSON } else { AGENT }
    }

    /// Returns a folder that the owner cannot enter.
    fn private(&self, dice: &mut Dice) -> PathBuf {
        self.path(&format!("private-{}", dice.pick(&[0, self.other()])))
    }

    /// Returns whether the folders above an entry are folders indeed.
    fn is_below_folders(&self, path: &Path) -> bool {
        let above = path.ancestors().skip(1).take_while(|above| above.starts_with(&self.tree));
        let is_folder = |above: &Path| above.symlink_metadata().is_ok_and(|found| found.is_dir());
        above.into_iter().all(is_folder)
    }

    /// Removes what has this path, and makes the folders above it. Returns whether these are
    /// folders indeed: what the test itself writes follows no link.
    fn make_way(&self, path: &Path) -> bool {
        let below = path.strip_prefix(&self.tree).unwrap();
        let above = below.ancestors().skip(1).map(|above| self.tree.join(above));
        for folder in above.collect::<Vec<_>>().into_iter().rev() {
            match folder.symlink_metadata() {
                Ok(found) if found.is_dir() => {}
                Ok(_) => return false,
                Err(_) if std::fs::create_dir(&folder).is_err() => return false,
                Err(_) => lchown(&folder, Some(self.owner), Some(self.owner)).unwrap(),
            }
        }
        match path.symlink_metadata() {
            Ok(found) if found.is_dir() => std::fs::remove_dir_all(path).is_ok(),
            Ok(_) => std::fs::remove_file(path).is_ok(),
            Err(_) => true,
        }
    }

    /// Makes an entry of the owner.
    fn put(&self, path: &Path, make: impl FnOnce(&Path) -> io::Result<()>) {
        if self.make_way(path) && make(path).is_ok() {
            lchown(path, Some(self.owner), Some(self.owner)).unwrap();
        }
    }

    fn write(&self, path: &Path, content: impl AsRef<[u8]>) {
        self.put(path, |path| std::fs::write(path, content));
    }

    fn pipe(&self, path: &Path) {
        let mode = nix::sys::stat::Mode::from_bits_truncate(0o666);
        self.put(path, |path| Ok(nix::unistd::mkfifo(path, mode)?));
    }

    fn ref_path(&self) -> PathBuf {
        self.tree.join(".git/refs/heads").join(self.branch)
    }

    /// Changes the repository in one way, and returns a line about it.
    pub(super) fn change(&self, dice: &mut Dice, template: &Template) -> String {
        let git = self.tree.join(".git");
        match dice.below(12) {
            0..=3 => {
                let at = dice.below(1_000);
                self.replace(at, dice)
            }
            4 | 5 => self.configure(dice),
            6 => {
                let line = dice.part(ATTRIBUTES, "\n");
                let name =
                    dice.pick(&[".git/info/attributes", ".gitattributes", "x/.gitattributes"]);
                self.write(&self.tree.join(name), line);
                format!("{name}: {line:?}; {}", self.configure(dice))
            }
            7 | 8 => {
                let at = dice.below(template.crafted.len());
                let from = template.bed.folder.path().join("crafted/objects");
                for folder in names(&from).into_iter().filter(|name| name.len() == 2) {
                    for name in names(&from.join(&folder)) {
                        let object = std::fs::read(from.join(&folder).join(&name)).unwrap();
                        self.write(&git.join("objects").join(&folder).join(&name), object);
                    }
                }
                self.write(&self.ref_path(), format!("{}\n", template.crafted[at]));
                format!("the crafted commit {at}")
            }
            9 => {
                let index = template.bed.source().join(".git/index");
                let mut bytes = std::fs::read(index).unwrap();
                let n = dice.below(bytes.len());
                let way = dice.below(4);
                match way {
                    0 => bytes.truncate(n),
                    1 => bytes[12..].fill(0xff),
                    2 => (0..20).for_each(|_| bytes[dice.below(n + 1)] ^= 0x55),
                    _ => {
                        let at = bytes.windows(8).position(|it| it == b"main.txt").unwrap();
                        bytes[at..at + 8].copy_from_slice(b"../x.txt");
                    }
                }
                self.write(&git.join("index"), bytes);
                format!("the index, way {way} at {n}")
            }
            10 => self.odd_ref(dice, template),
            _ => self.lead_away(dice, template),
        }
    }

    /// Replaces a piece in a way. The first numbers have all combinations.
    pub(super) fn replace(&self, at: usize, dice: &mut Dice) -> String {
        let git = self.tree.join(".git");
        let pieces: Vec<&str> = PIECES.split(' ').collect();
        let name = pieces[at % pieces.len()].replace("BRANCH", self.branch);
        let is_index = |name: &String| Path::new(name).extension().is_some_and(|it| it == "idx");
        let pack = names(&git.join("objects/pack")).into_iter().find(is_index);
        let name = name.replace("PACK.idx", pack.as_deref().unwrap_or("pack-x.idx"));
        let path = match name.strip_prefix('/') {
            Some(name) => self.tree.join(name),
            None if name == "." => git,
            None => git.join(&name),
        };
        let private = self.private(dice);
        let link_to = |to: PathBuf| self.put(&path, |path| symlink(to, path));
        // Root may read all in a repository of root.
        let text = if self.owner == 0 { "another text" } else { SECRET };
        let file_of = |uid: u32| {
            self.write(&path, text);
            if self.is_below_folders(&path) && path.symlink_metadata().is_ok_and(|it| it.is_file())
            {
                lchown(&path, Some(uid), Some(uid)).unwrap();
                mode(&path, 0o600);
            }
        };
        let give_to = |uid: u32| {
            if self.is_below_folders(&path) && path.symlink_metadata().is_ok() {
                give(&path, uid);
            }
        };
        let way = at / pieces.len() % N_WAYS;
        match way {
            0 => link_to(private.join("secret")),
            1 => link_to(private.join("folder")),
            2 => link_to(private.join("repo/.git").join(name.trim_start_matches('/'))),
            3 => self.pipe(&path),
            4 => self.put(&path, |path| std::fs::create_dir(path)),
            5 => {
                // A file of the work is kept, however large it is, and that takes its time.
                let size = if path.ends_with("main.txt") { HUGE / 64 } else { HUGE };
                self.put(&path, |path| std::fs::File::create(path)?.set_len(size));
            }
            6 => file_of(self.other()),
            7 => file_of(0),
            8 => give_to(self.other()),
            _ => give_to(0),
        }
        let ways = "a link to a secret,a link to a folder,a link to its like,a pipe,a folder,huge,\
            a file of another user,a file of root,given to another user,given to root";
        let made = ways.split(',').nth(way).unwrap();
        format!("`{name}` is {made} ({})", private.display())
    }

    /// Adds settings that run a program.
    fn configure(&self, dice: &mut Dice) -> String {
        let mark = self.path("mark");
        let all: Vec<&str> = PROGRAMS.into_iter().chain(MORE_PROGRAMS.split(' ')).collect();
        let n = dice.below(12);
        // Most often all of them, so that a rare one is not missed.
        let chosen = if n < 6 { all } else { (0..n).map(|_| dice.pick(&all)).collect() };
        let mut text = "[protocol \"ext\"]\n\tallow = always\n[core]\n\tbare = false\n".to_owned();
        for key in &chosen {
            let (section, name) = key.rsplit_once('.').unwrap();
            let section = match section.split_once('.') {
                Some((section, middle)) => format!("{section} \"{middle}\""),
                None => section.to_owned(),
            };
            let value = match *key {
                "core.worktree" if n != 0 => continue,
                "extensions.partialClone" if n != 1 => continue,
                "core.attributesFile" | "core.excludesFile" => self.path("private-0/secret"),
                "core.worktree" => self.path("private-0"),
                "core.hooksPath" => PathBuf::from("hooks"),
                "extensions.partialClone" => PathBuf::from("origin"),
                "submodule.lib.update" => PathBuf::from(format!("!{}", mark.display())),
                _ => mark.clone(),
            };
            let _ = writeln!(text, "[{section}]\n\t{name} = {}", value.display());
        }
        let _ = writeln!(text, "[remote \"origin\"]\n\turl = ext::{}", mark.display());
        let script = std::fs::read(&mark).unwrap();
        for hook in ["post-checkout", "post-merge", "reference-transaction", "pre-push"] {
            let path = self.tree.join(".git/hooks").join(hook);
            self.put(&path, |path| std::fs::write(path, &script).map(|()| mode(path, 0o755)));
        }
        let config = self.tree.join(".git/config");
        let is_file = config.symlink_metadata().is_ok_and(|it| it.is_file() && it.len() < 1 << 20);
        let before = if is_file {
            std::fs::read_to_string(&config).unwrap_or_default()
        } else {
            String::new()
        };
        let way = dice.pick(&["", "[include]", "[includeIf \"gitdir:/\"]"]);
        if way.is_empty() {
            self.write(&config, before + &text);
        } else {
            self.write(&self.tree.join(".git/more"), text);
            self.write(&config, before + &format!("{way}\n\tpath = more\n"));
        }
        format!("{} settings {way}", chosen.len())
    }

    fn odd_ref(&self, dice: &mut Dice, template: &Template) -> String {
        let names: [&[u8]; 10] = [
            b"main", b"a\xffb", b"-x", b"$(id)", b"x\ny", b"x.lock", b"@{0}", b"a/b/c/d", b"HEAD",
            b"*",
        ];
        let zero = "0".repeat(40);
        let to_secret = format!("ref: {}\n", self.path("private-0/secret").display());
        let texts: [&str; 9] = [
            &to_secret,
            "ref: refs/../../../private-0/secret\n",
            "ref: refs/heads/main\n",
            &zero,
            "",
            &template.private,
            "\0\0\0\u{fffd}",
            "gitdir: ../../private-0/repo",
            &template.crafted[0],
        ];
        let (name, text) = (dice.pick(&names), dice.pick(&texts));
        let path = match dice.below(4) {
            0 => self.tree.join(".git/HEAD"),
            1 => self.ref_path(),
            _ => self.tree.join(".git/refs/heads").join(OsStr::from_bytes(name)),
        };
        self.write(&path, text);
        format!("{} has {text:?}", path.display())
    }

    /// Lets the repository or its files lead to a private repository, or to a pipe.
    fn lead_away(&self, dice: &mut Dice, template: &Template) -> String {
        let git = self.tree.join(".git");
        let private = self.private(dice);
        let repository = private.join("repo/.git");
        let way = dice.below(8);
        match way {
            0 => self.write(&git, format!("gitdir: {}\n", repository.display())),
            1 => self.write(&git.join("commondir"), format!("{}\n", repository.display())),
            2 | 3 => {
                let objects = format!("{}\n", repository.join("objects").display());
                self.write(&git.join("objects/info/alternates"), objects);
                self.write(&self.ref_path(), format!("{}\n", template.private));
            }
            4 => {
                let nested = Target { tree: self.tree.join("nested"), ..*self };
                nested.write(&nested.tree.join(".git/HEAD"), "ref: refs/heads/main\n");
                nested.write(&nested.tree.join(".gitattributes"), ATTRIBUTES);
                nested.write(&nested.tree.join("file.txt"), "nested\n");
                std::fs::create_dir_all(nested.tree.join(".git/objects")).unwrap();
                std::fs::create_dir_all(nested.tree.join(".git/refs/heads")).unwrap();
                nested.configure(dice);
                give(&nested.tree, self.owner);
            }
            5 => {
                self.put(&self.tree.join("main.txt"), |path| symlink(private.join("secret"), path));
            }
            _ => {
                let names =
                    [".gitignore", ".gitattributes", ".gitmodules", "x/.gitignore", "lib/.git"];
                let name = dice.pick(&names);
                self.pipe(&self.tree.join(name));
                return format!("`{name}` is a pipe");
            }
        }
        format!("leads to {} in way {way}", private.display())
    }

    /// Gives the agents' user a part of a repository of root, and changes it as this user.
    pub(super) fn share(&self, dice: &mut Dice, template: &Template) -> String {
        let git = self.tree.join(".git");
        let shared = match dice.below(3) {
            0 => {
                self.configure(dice);
                vec![git.join("config")]
            }
            1 => {
                let objects = self.path("private-0/repo/.git/objects");
                let info = git.join("objects/info");
                self.write(&info.join("alternates"), format!("{}\n", objects.display()));
                self.write(&self.ref_path(), format!("{}\n", template.private));
                vec![info, git.join("refs/heads")]
            }
            _ => vec![git.join(dice.part(PIECES, " "))],
        };
        for path in shared.iter().filter(|path| path.symlink_metadata().is_ok()) {
            give(path, AGENT);
        }
        format!("{shared:?} of root belong to the agents' user")
    }
}
