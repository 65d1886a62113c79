//! What a process that only waits has of its program in its page tables.
//!
//! The kernel maps sixteen pages around each that is touched, so that a start leaves some thousands behind. They cost no memory of
//! their own, but a process that ends gives each of them back: of hundreds of keepers that end at once, that was half the work, and
//! the records of the last waited for it.

use std::ffi::{c_int, c_void};
use std::ops::Range;

use nix::libc;
use nix::unistd::{SysconfVar, sysconf};
use rustix::mm::{Advice, madvise};

/// Lets go of the pages of the program and its libraries that hold what their files hold: code and constants. Those that are
/// used again come back from the page cache. Nothing is changed where that can't be.
pub fn let_go_of_program() {
    let of_files = std::fs::read_to_string("/proc/self/maps")
        .map(|maps| pages_of_files(&maps))
        .unwrap_or_default();
    // SAFETY: the function gets what it expects, and the pages live as long as the call.
    unsafe {
        libc::dl_iterate_phdr(Some(let_go_of_object), (&raw const of_files).cast_mut().cast())
    };
}

unsafe extern "C" fn let_go_of_object(
    object: *mut libc::dl_phdr_info,
    _: libc::size_t,
    of_files: *mut c_void,
) -> c_int {
    // SAFETY: both are valid during this call; the second is what was given for it.
    let (object, of_files) = unsafe { (&*object, &*of_files.cast::<Vec<Range<u64>>>()) };
    let base = object.dlpi_addr;
    // SAFETY: a number is asked for by its name.
    let kernels = unsafe { libc::getauxval(libc::AT_SYSINFO_EHDR) };
    if object.dlpi_phdr.is_null() || (kernels != 0 && base == kernels) {
        return 0;
    }
    let Ok(Some(page_size)) = sysconf(SysconfVar::PAGE_SIZE) else {
        return 0;
    };
    // SAFETY: headers of a loaded object are part of it, and it names how many there are.
    let headers = unsafe { std::slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    if headers.iter().any(|header| has_relocated_code(base, header)) {
        return 0;
    }
    for header in headers {
        // A program that unpacked itself has its code in memory alone, which would be gone for good.
        if let Some(pages) = unchanged_pages(base, header, page_size.cast_unsigned())
            && of_files
                .iter()
                .any(|of_file| of_file.start <= pages.start && pages.end <= of_file.end)
        {
            let length = usize::try_from(pages.end - pages.start).unwrap_or(0);
            // SAFETY: no memory changes. Nothing writes to these pages, so that they hold what the file holds, also when they
            // are read anew; a debugger's breakpoint is lost.
            let _ = unsafe { madvise(pages.start as *mut _, length, Advice::LinuxDontNeed) };
        }
    }
    0
}

/// What is mapped from files, by the lines of `/proc/self/maps`: adjoining ones of one kind are one line there.
fn pages_of_files(maps: &str) -> Vec<Range<u64>> {
    let mapped = |line: &str| {
        let mut fields = line.split_ascii_whitespace();
        let (start, end) = fields.next()?.split_once('-')?;
        let inode = fields.nth(3)?;
        let address = |text| u64::from_str_radix(text, 16).ok();
        Some(address(start)?..address(end)?).filter(|_| inode != "0")
    };
    maps.lines().filter_map(mapped).collect()
}

/// Whether the header is of an object's dynamic section, and that says that what nobody may write to was written to by the loader.
fn has_relocated_code(base: u64, header: &libc::Elf64_Phdr) -> bool {
    const DT_NULL: u64 = 0;
    const DT_TEXTREL: u64 = 22;
    const DT_FLAGS: u64 = 30;
    const DF_TEXTREL: u64 = 4;
    if header.p_type != libc::PT_DYNAMIC {
        return false;
    }
    let address = base.wrapping_add(header.p_vaddr) as *const [u64; 2];
    let n_entries = usize::try_from(header.p_memsz / 16).unwrap_or(0);
    // SAFETY: the section is loaded with its object, and stays as long; its entries are pairs of words.
    let entries = unsafe { std::slice::from_raw_parts(address, n_entries) };
    let mut entries = entries.iter().take_while(|[tag, _]| *tag != DT_NULL);
    entries.any(|[tag, value]| *tag == DT_TEXTREL || (*tag == DT_FLAGS && value & DF_TEXTREL != 0))
}

/// The pages of a loaded segment that nobody may write to: what is relocated is in one that somebody may.
fn unchanged_pages(base: u64, header: &libc::Elf64_Phdr, page_size: u64) -> Option<Range<u64>> {
    let is_unchanged = header.p_type == libc::PT_LOAD && header.p_flags & libc::PF_W == 0;
    let start = base.wrapping_add(header.p_vaddr);
    let pages =
        start / page_size * page_size..(start + header.p_filesz).next_multiple_of(page_size);
    (is_unchanged && !pages.is_empty()).then_some(pages)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_written_to_is_kept() {
        let header = |p_type, p_flags, p_vaddr, p_filesz| libc::Elf64_Phdr {
            p_type,
            p_flags,
            p_offset: 0,
            p_vaddr,
            p_paddr: p_vaddr,
            p_filesz,
            p_memsz: p_filesz,
            p_align: 0x1000,
        };
        let pages = |header: libc::Elf64_Phdr| unchanged_pages(0x5580_0000, &header, 0x1000);
        let (code, constants) = (libc::PF_R | libc::PF_X, libc::PF_R);
        assert_eq!(
            pages(header(libc::PT_LOAD, code, 0x1040, 0x2001)),
            Some(0x5580_1000..0x5580_4000)
        );
        assert_eq!(
            pages(header(libc::PT_LOAD, constants, 0, 0x1000)),
            Some(0x5580_0000..0x5580_1000)
        );
        assert_eq!(pages(header(libc::PT_LOAD, libc::PF_R | libc::PF_W, 0x4000, 0x1000)), None);
        assert_eq!(pages(header(libc::PT_LOAD, constants, 0x5000, 0)), None);
        // A part of one that may be written to.
        assert_eq!(pages(header(libc::PT_GNU_RELRO, libc::PF_R, 0x4000, 0x1000)), None);
    }

    #[test]
    fn what_no_file_holds_is_kept() {
        let maps = "\
            5580000-5583000 r--p 00000000 fe:00 1234                       /usr/bin/agent coordinator\n\
            5583000-5590000 r-xp 00003000 fe:00 1234                       /usr/bin/agent coordinator\n\
            5590000-5591000 r-xp 00000000 00:00 0 \n\
            7ffd000-7fff000 r-xp 00000000 00:00 0                          [vdso]\n";
        assert_eq!(pages_of_files(maps), [0x0558_0000..0x0558_3000, 0x0558_3000..0x0559_0000]);
    }

    /// How much of what files hold is in the page tables of this process, in kilobytes.
    fn mapped() -> u64 {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let of_files = status.lines().find_map(|line| line.strip_prefix("RssFile:")).unwrap();
        of_files.trim().trim_end_matches(" kB").parse().unwrap()
    }

    #[test]
    fn what_was_let_go_of_comes_back_when_it_is_used() {
        // What other tests run meanwhile is mapped again at once; without letting go there is never less.
        let mut looks = std::iter::repeat_with(|| {
            let before = mapped();
            let_go_of_program();
            (before, mapped())
        });
        assert!(
            looks.by_ref().take(1_000).any(|(before, after)| after > 0 && after < before),
            "{:?} KiB",
            looks.next()
        );
    }
}
